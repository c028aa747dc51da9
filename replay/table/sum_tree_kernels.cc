#include "replay/table/sum_tree_kernels.h"

#include <algorithm>

#include "base/instruction_sets.h"

// Highway includes this file once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "replay/table/sum_tree_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace replicant::replay::internal {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
constexpr int kFanOut = SumTree::kFanOut;
using Tag = HWY_CAPPED(int64_t, kFanOut);

// Number of queries that walk down together: their loads overlap, and their
// state stays in the first-level cache.
constexpr size_t kBlock = 64;

void Prefetch(const SumTree::Node& node) {
  __builtin_prefetch(&node.prefix[0]);
  __builtin_prefetch(&node.prefix[kFanOut / 2]);
}

// prefix[j] += difference for j >= first
void AddToSuffix(int64_t* HWY_RESTRICT prefix, int64_t first,
                 int64_t difference) {
  const Tag d;
  const auto added = hn::Set(d, difference);
  const auto before = hn::Set(d, first - 1);
  for (int64_t j = 0; j < kFanOut; j += hn::Lanes(d)) {
    const auto is_in_suffix = hn::Gt(hn::Iota(d, j), before);
    const auto old = hn::Load(d, prefix + j);
    hn::Store(hn::Add(old, hn::IfThenElseZero(is_in_suffix, added)), d,
              prefix + j);
  }
}

// Number of prefix sums that are <= target. A child without weight repeats the
// sum before it, so it is counted together with it and never chosen.
int64_t ChooseChild(const int64_t* HWY_RESTRICT prefix, int64_t target) {
  const Tag d;
  const auto above = hn::Set(d, target + 1);
  size_t child = 0;
  for (size_t j = 0; j < kFanOut; j += hn::Lanes(d)) {
    child += hn::CountTrue(d, hn::Lt(hn::Load(d, prefix + j), above));
  }
  return static_cast<int64_t>(child);
}

void SetWeightsImpl(const SumTreeView& tree, const int64_t* slots,
                    const uint64_t* weights, size_t count) {
  // the nodes next to the slots are the ones that miss the cache
  constexpr size_t kAhead = 8;
  SumTree::Node* const leaves = tree.levels[tree.num_levels - 1];
  for (size_t i = 0; i < std::min(kAhead, count); ++i) {
    Prefetch(leaves[slots[i] / kFanOut]);
  }
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) Prefetch(leaves[slots[i + kAhead] / kFanOut]);
    int64_t index = slots[i];
    const int64_t* prefix = leaves[index / kFanOut].prefix;
    const int64_t child = index % kFanOut;
    const int64_t old = prefix[child] - (child == 0 ? 0 : prefix[child - 1]);
    const int64_t difference = static_cast<int64_t>(weights[i]) - old;
    if (difference == 0) continue;
    for (int level = tree.num_levels - 1; level >= 0; --level) {
      AddToSuffix(tree.levels[level][index / kFanOut].prefix, index % kFanOut,
                  difference);
      index /= kFanOut;
    }
  }
}

void FindSlotsImpl(const SumTreeView& tree, const uint64_t* targets,
                   int64_t* slots, size_t count) {
  int64_t rest[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t size = std::min(kBlock, count - begin);
    int64_t* const node = slots + begin;
    for (size_t i = 0; i < size; ++i) {
      rest[i] = static_cast<int64_t>(targets[begin + i]);
      node[i] = 0;
    }
    // all queries of the block take one level before any takes the next
    for (int level = 0; level < tree.num_levels; ++level) {
      const bool is_last = level + 1 == tree.num_levels;
      for (size_t i = 0; i < size; ++i) {
        const int64_t* prefix = tree.levels[level][node[i]].prefix;
        const int64_t child = ChooseChild(prefix, rest[i]);
        if (child > 0) rest[i] -= prefix[child - 1];
        node[i] = node[i] * kFanOut + child;
        if (!is_last) Prefetch(tree.levels[level + 1][node[i]]);
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace replicant::replay::internal
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::replay::internal {

HWY_EXPORT(SetWeightsImpl);
HWY_EXPORT(FindSlotsImpl);

void SetWeights(const SumTreeView& tree, const int64_t* slots,
                const uint64_t* weights, size_t count) {
  HWY_DYNAMIC_DISPATCH(SetWeightsImpl)(tree, slots, weights, count);
}

void FindSlots(const SumTreeView& tree, const uint64_t* targets, int64_t* slots,
               size_t count) {
  HWY_DYNAMIC_DISPATCH(FindSlotsImpl)(tree, targets, slots, count);
}

}  // namespace replicant::replay::internal
#endif  // HWY_ONCE
