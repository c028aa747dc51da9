#include "replay/table/sum_tree.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "replay/table/sum_tree_kernels.h"

namespace replicant::replay {
namespace {

// The kernels change nodes only in SetWeights, which a const caller never runs.
internal::SumTreeView View(
    const std::vector<std::vector<SumTree::Node>>& levels) {
  internal::SumTreeView view = {};
  view.num_levels = static_cast<int>(levels.size());
  for (size_t i = 0; i < levels.size(); ++i) {
    view.levels[i] = const_cast<SumTree::Node*>(levels[i].data());
  }
  return view;
}

}  // namespace

SumTree::SumTree(int64_t capacity) : capacity_(capacity) {
  if (capacity < 1 || capacity > kMaxCapacity) {
    throw InvalidArgument(fmt::format("SumTree: capacity {} is outside [1, {}]",
                                      capacity, kMaxCapacity));
  }
  // from the nodes above the slots up to a single root
  int64_t num_nodes = capacity;
  do {
    num_nodes = (num_nodes + kFanOut - 1) / kFanOut;
    levels_.emplace_back(static_cast<size_t>(num_nodes));
  } while (num_nodes > 1);
  std::reverse(levels_.begin(), levels_.end());
}

void SumTree::Set(std::span<const int64_t> slots,
                  std::span<const Weight> weights) {
  if (slots.size() != weights.size()) {
    throw InvalidArgument(fmt::format("SumTree::Set: {} slots, but {} weights",
                                      slots.size(), weights.size()));
  }
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0 || slots[i] >= capacity_) {
      throw InvalidArgument(fmt::format(
          "SumTree::Set: slot {} is outside [0, {})", slots[i], capacity_));
    }
    if (weights[i] > kMaxWeight) {
      throw InvalidArgument(fmt::format("SumTree::Set: weight {} is above {}",
                                        weights[i], kMaxWeight));
    }
  }
  internal::SetWeights(View(levels_), slots.data(), weights.data(),
                       slots.size());
}

void SumTree::Find(std::span<const Weight> targets,
                   std::span<int64_t> slots) const {
  REPLICANT_CHECK_EQ(targets.size(), slots.size());
  for (const Weight target : targets) REPLICANT_CHECK_LT(target, total());
  internal::FindSlots(View(levels_), targets.data(), slots.data(),
                      targets.size());
}

int64_t SumTree::Find(Weight target) const {
  int64_t slot = 0;
  Find({&target, 1}, {&slot, 1});
  return slot;
}

SumTree::Weight SumTree::weight(int64_t slot) const {
  REPLICANT_CHECK(slot >= 0 && slot < capacity_, "slot {} of {}", slot,
                  capacity_);
  const Node& node = levels_.back()[static_cast<size_t>(slot / kFanOut)];
  const int64_t child = slot % kFanOut;
  const int64_t before = child == 0 ? 0 : node.prefix[child - 1];
  return static_cast<Weight>(node.prefix[child] - before);
}

}  // namespace replicant::replay
