#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "replay/table/sum_tree.h"

namespace replicant::replay {

// How much of an item's weight counts at an age:
//
//   fade(age) = max(base^age, floor)
//
// The age of an item is the number of items that were inserted after it.
//
// Source: DR.Q (arXiv:2605.11711), with base 0.9999 and floor 0.1.
struct PriorityFade {
  double base = 1.0;   // in (0, 1]; 1: nothing fades
  double floor = 0.1;  // in [kMinFloor, 1]

  static constexpr double kMinFloor = 1e-6;
  bool is_on() const { return base < 1.0; }
  // The smallest age, at least 1, from which on fade(age) is the floor.
  // Precondition: is_on().
  double AgeAtFloor() const;
};

// FadedSumTree draws slots with probability proportional to a weight that fades
// with the slot's age, and inserts a slot in O(log capacity):
//
//   P(i) = weight(i) / total(),   weight(i) = w_i fade(age_i)
//
// where w_i is the weight that was set. No weight is written again because it
// ages, except once, at the floor.
//
// Layout: let A = AgeAtFloor(). A slot is young while its age is below A.
// Insertions t = 0, 1, ... form blocks of B = ceil(A / 8) successive ones. The
// young slots of a block lie in a SumTree by t, with the weight
// w base^(end - t), where end is the block's last t. While `now` is the last
// insertion, all of them have the factor base^(now - end) in common:
//
//   w base^(now - t) = w base^(end - t) * base^(now - end)
//
// The old slots lie in a SumTree by slot, with the weight w and the common
// factor floor. Each insertion makes at most one young slot old. At most ten
// trees are thus summed for total() and searched for a draw.
//
// Rounding: ages are exact. w base^(end - t) is rounded to a whole number, and
// to at least 1 unless w is 0; common factors are rounded to multiples of
// 2^-30, the unit of weight() and total(). Both are exact sums and products of
// these numbers, so that draws match them exactly. weight() differs from
// w fade(age) by less than floor^(-1/8) (1.34 for floor 0.1) + w 2^-28, in
// units of w.
//
// Thread-safety: as SumTree.
class FadedSumTree {
 public:
  using Weight = SumTree::Weight;
  // 2^24 slots of 2^38 - 1, with factors below 2^33.
  __extension__ using Sum = unsigned __int128;
  // Of a factor.
  static constexpr double kUnits = 0x1p30;

  // No slot is held. Throws InvalidArgument for a capacity that SumTree
  // refuses. Precondition: fade.is_on(), and an AgeAtFloor() of at most
  // SumTree::kMaxCapacity (checked; aborts).
  FadedSumTree(int64_t capacity, const PriorityFade& fade);

  // Sets the weight of a slot of weight zero and makes it the youngest.
  // Precondition here and below: slots are in [0, capacity) (checked; aborts).
  void Insert(int64_t slot, Weight weight);
  // Sets w of slots that were inserted, as SumTree::Set(); their ages stay. A
  // weight of zero removes a slot.
  void Set(std::span<const int64_t> slots, std::span<const Weight> weights);
  void Set(int64_t slot, Weight weight) { Set({&slot, 1}, {&weight, 1}); }
  // Lets all slots age as though other slots had been inserted and removed,
  // until that makes `num_inserted` insertions in all. Does nothing if there
  // were more already.
  void AgeTo(uint64_t num_inserted);

  // As SumTree::Find(). The slots come old ones first and then by age: a larger
  // target gives no older slot among the young.
  void Find(std::span<const Sum> targets, std::span<int64_t> slots) const;

  Sum weight(int64_t slot) const;
  Sum total() const;

 private:
  static constexpr uint64_t kBlocks = 8;
  static constexpr size_t kMaxTrees = kBlocks + 2;
  static constexpr size_t kOld = 0;  // in trees_

  struct Held {
    uint64_t insertion = 0;
    Weight weight = 0;  // w
  };
  struct Place {
    size_t tree = 0;
    int64_t slot = 0;  // within the tree
  };
  Place PlaceOf(uint64_t insertion) const {
    return {1 + static_cast<size_t>(insertion / block_ % num_blocks_),
            static_cast<int64_t>(insertion % block_)};
  }
  bool IsOld(uint64_t insertion) const {
    return num_inserted_ - insertion > age_at_floor_;
  }
  const Held& HeldAt(int64_t slot) const;
  Weight YoungWeight(const Held& held) const;
  // Counts one more insertion, which may make a young slot old.
  void Age();
  void ComputeFactors();

  uint64_t age_at_floor_;  // A
  uint64_t block_;         // B
  uint64_t num_blocks_;    // that can hold young slots at a time
  uint64_t num_inserted_ = 0;
  std::vector<double> powers_;        // base^i, i < B
  std::vector<SumTree> trees_;        // the old ones, then block b at 1 + b % n
  uint64_t factors_[kMaxTrees] = {};  // of trees_, in units of 2^-30
  double block_powers_[kMaxTrees] = {};  // base^(B i)
  std::vector<Held> held_;               // by slot
  // by insertion, modulo the young trees' capacity
  std::vector<int32_t> slots_;
};

}  // namespace replicant::replay
