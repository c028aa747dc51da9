#pragma once

#include <cstddef>
#include <cstdint>

#include "replay/table/sum_tree.h"

// The two inner loops of SumTree, compiled for several instruction sets and
// chosen at run time.
namespace replicant::replay::internal {

// 16^6 = SumTree::kMaxCapacity.
inline constexpr int kMaxLevels = 6;

// Borrowed for one call; `levels` as in SumTree.
struct SumTreeView {
  SumTree::Node* levels[kMaxLevels];
  int num_levels;
};

// Adds weights[i] - weight(slots[i]) on the path of slots[i], for i in order.
void SetWeights(const SumTreeView& tree, const int64_t* slots,
                const uint64_t* weights, size_t count);

// slots[i] = slot whose interval holds targets[i].
void FindSlots(const SumTreeView& tree, const uint64_t* targets, int64_t* slots,
               size_t count);

}  // namespace replicant::replay::internal
