#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace replicant::replay {

// SumTree draws slots with probability proportional to their weight and lets
// one weight change in O(log capacity).
//
//   P(i) = weight(i) / total(),   0 <= i < capacity()
//
// Weights are whole numbers, so every sum is exact: the tree cannot drift after
// any number of updates, and no draw can return a slot of weight zero. The
// caller maps a priority to a weight (replay/table/selector.h).
//
// Layout: 16 children per node. A node stores, for each child, the prefix
// sum of the weights up to that child. Choosing a child is thus one
// comparison of 16 numbers, and an update adds one difference to a suffix
// of each node on the way to the root. Both are vector code chosen at run
// time (replay/table/sum_tree_kernels.h); every choice gives the same
// slots.
//
// Thread-safety: const methods may run concurrently; Set() needs exclusive
// access. Shard holds the lock (replay/table/shard.h).
//
// Source: proportional variant of Prioritized Experience Replay, sec. 3.3 and
// app. B.2.1 (arXiv:1511.05952).
class SumTree {
 public:
  using Weight = uint64_t;

  // 2^24 slots of 2^38 - 1 sum to less than 2^62: no sum can overflow, and the
  // signed comparisons of all vector units suffice.
  static constexpr int64_t kMaxCapacity = int64_t{1} << 24;
  static constexpr Weight kMaxWeight = (Weight{1} << 38) - 1;

  // All weights start at zero. Throws InvalidArgument unless capacity is in
  // [1, kMaxCapacity].
  explicit SumTree(int64_t capacity);

  // Sets weight(slots[i]) to weights[i], in order: for a repeated slot the last
  // one counts. O(log capacity) each, with memory prefetched. Throws
  // InvalidArgument, leaving the tree unchanged, if the lengths differ, a slot
  // is outside [0, capacity()) or a weight above kMaxWeight.
  void Set(std::span<const int64_t> slots, std::span<const Weight> weights);
  void Set(int64_t slot, Weight weight) { Set({&slot, 1}, {&weight, 1}); }

  // Writes to slots[i] the slot whose interval of the cumulative weights holds
  // targets[i], in [0, total()). Its weight is never zero. Precondition: equal
  // lengths, targets below total() (checked; aborts).
  void Find(std::span<const Weight> targets, std::span<int64_t> slots) const;
  int64_t Find(Weight target) const;

  Weight weight(int64_t slot) const;
  Weight total() const {
    return static_cast<Weight>(levels_.front()[0].prefix[kFanOut - 1]);
  }
  int64_t capacity() const { return capacity_; }

  static constexpr int kFanOut = 16;
  // Two cache lines.
  struct alignas(128) Node {
    int64_t prefix[kFanOut] = {};
  };

 private:
  int64_t capacity_;
  // levels_[0] is the root alone; child c of node i of a level is node
  // 16 i + c of the next, or slot 16 i + c below the last.
  std::vector<std::vector<Node>> levels_;
};

}  // namespace replicant::replay
