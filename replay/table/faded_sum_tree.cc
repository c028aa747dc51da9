#include "replay/table/faded_sum_tree.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace replicant::replay {
namespace {

// Many slots are served in blocks, whose arrays fit on the stack.
constexpr size_t kAtOnce = 256;

uint64_t Rounded(double value) {
  return static_cast<uint64_t>(std::nearbyint(value));
}

}  // namespace

double PriorityFade::AgeAtFloor() const {
  return std::max(1.0, std::ceil(std::log(floor) / std::log(base)));
}

FadedSumTree::FadedSumTree(int64_t capacity, const PriorityFade& fade) {
  const double age_at_floor = fade.AgeAtFloor();
  REPLICANT_CHECK(fade.is_on() && age_at_floor <= double{SumTree::kMaxCapacity},
                  "base {}, floor {}", fade.base, fade.floor);
  age_at_floor_ = static_cast<uint64_t>(age_at_floor);
  block_ = (age_at_floor_ + kBlocks - 1) / kBlocks;
  // A successive insertions touch one block more than they fill
  num_blocks_ = (age_at_floor_ + block_ - 1) / block_ + 1;
  REPLICANT_CHECK_LT(num_blocks_, kMaxTrees);
  trees_.emplace_back(capacity);
  for (uint64_t i = 0; i < num_blocks_; ++i) {
    trees_.emplace_back(static_cast<int64_t>(block_));
  }
  held_.resize(static_cast<size_t>(capacity));
  slots_.resize(block_ * num_blocks_);
  // by multiplication, which gives the same bits on every machine
  double power = 1.0;
  for (uint64_t i = 0; i < block_; ++i, power *= fade.base) {
    powers_.push_back(power);
  }
  block_powers_[0] = 1.0;
  for (size_t i = 1; i < kMaxTrees; ++i) {
    block_powers_[i] = block_powers_[i - 1] * power;
  }
  factors_[kOld] = Rounded(fade.floor * kUnits);
  ComputeFactors();
}

const FadedSumTree::Held& FadedSumTree::HeldAt(int64_t slot) const {
  REPLICANT_CHECK(slot >= 0 && slot < trees_[kOld].capacity(), "slot {} of {}",
                  slot, trees_[kOld].capacity());
  return held_[static_cast<size_t>(slot)];
}

FadedSumTree::Weight FadedSumTree::YoungWeight(const Held& held) const {
  if (held.weight == 0) return 0;
  const double power = powers_[block_ - 1 - held.insertion % block_];
  return std::max<Weight>(1, Rounded(static_cast<double>(held.weight) * power));
}

void FadedSumTree::Age() {
  ++num_inserted_;
  if (num_inserted_ <= age_at_floor_) return;
  // the insertion whose age is A from now on; its slot may be free by now, or
  // taken by a later one
  const uint64_t insertion = num_inserted_ - 1 - age_at_floor_;
  const int64_t slot = slots_[insertion % slots_.size()];
  const Held& held = HeldAt(slot);
  if (held.insertion != insertion || held.weight == 0) return;
  const Place place = PlaceOf(insertion);
  trees_[place.tree].Set(place.slot, 0);
  trees_[kOld].Set(slot, held.weight);
}

void FadedSumTree::ComputeFactors() {
  if (num_inserted_ == 0) return;
  const uint64_t now = num_inserted_ - 1;
  const uint64_t newest = now / block_;
  const double before_end = powers_[block_ - 1 - now % block_];
  for (uint64_t i = 0; i < num_blocks_ && i <= newest; ++i) {
    const double factor = block_powers_[i] / before_end;
    factors_[1 + (newest - i) % num_blocks_] = Rounded(factor * kUnits);
  }
}

void FadedSumTree::Insert(int64_t slot, Weight weight) {
  const Held held = {num_inserted_, weight};
  REPLICANT_CHECK_EQ(HeldAt(slot).weight, Weight{0});
  Age();
  held_[static_cast<size_t>(slot)] = held;
  slots_[held.insertion % slots_.size()] = static_cast<int32_t>(slot);
  const Place place = PlaceOf(held.insertion);
  trees_[place.tree].Set(place.slot, YoungWeight(held));
  ComputeFactors();
}

void FadedSumTree::AgeTo(uint64_t num_inserted) {
  // beyond so many insertions nothing young is left
  const uint64_t most = num_inserted_ + age_at_floor_;
  while (num_inserted_ < std::min(num_inserted, most)) Age();
  num_inserted_ = std::max(num_inserted_, num_inserted);
  ComputeFactors();
}

void FadedSumTree::Set(std::span<const int64_t> slots,
                       std::span<const Weight> weights) {
  REPLICANT_CHECK_EQ(slots.size(), weights.size());
  int64_t old_slots[kAtOnce];
  Weight old_weights[kAtOnce];
  for (size_t begin = 0; begin < slots.size(); begin += kAtOnce) {
    const size_t end = std::min(begin + kAtOnce, slots.size());
    for (size_t i = begin; i < end; ++i) __builtin_prefetch(&HeldAt(slots[i]));
    size_t num_old = 0;
    for (size_t i = begin; i < end; ++i) {
      Held& held = held_[static_cast<size_t>(slots[i])];
      held.weight = weights[i];
      if (IsOld(held.insertion)) {
        old_slots[num_old] = slots[i];
        old_weights[num_old++] = weights[i];
      } else {
        const Place place = PlaceOf(held.insertion);
        trees_[place.tree].Set(place.slot, YoungWeight(held));
      }
    }
    trees_[kOld].Set({old_slots, num_old}, {old_weights, num_old});
  }
}

void FadedSumTree::Find(std::span<const Sum> targets,
                        std::span<int64_t> slots) const {
  REPLICANT_CHECK_EQ(targets.size(), slots.size());
  // the trees in the order of their slots' ages, and where each ends
  size_t order[kMaxTrees] = {kOld};
  Sum ends[kMaxTrees];
  const uint64_t newest = num_inserted_ == 0 ? 0 : (num_inserted_ - 1) / block_;
  Sum end = 0;
  for (size_t i = 0; i < trees_.size(); ++i) {
    if (i > 0) order[i] = 1 + (newest + i) % num_blocks_;
    end += Sum{trees_[order[i]].total()} * factors_[order[i]];
    ends[i] = end;
  }
  Weight rests[kAtOnce];
  for (size_t begin = 0; begin < targets.size();) {
    REPLICANT_CHECK(targets[begin] < end, "a target beyond the sum");
    const size_t part = static_cast<size_t>(
        std::upper_bound(ends, ends + trees_.size(), targets[begin]) - ends);
    const size_t tree = order[part];
    const Sum start = part == 0 ? 0 : ends[part - 1];
    // with the targets behind it that fall into the same tree
    size_t count = 0;
    while (count < kAtOnce && begin + count < targets.size() &&
           targets[begin + count] >= start &&
           targets[begin + count] < ends[part]) {
      rests[count] = static_cast<Weight>((targets[begin + count] - start) /
                                         factors_[tree]);
      ++count;
    }
    const std::span<int64_t> found = slots.subspan(begin, count);
    trees_[tree].Find({rests, count}, found);
    if (tree != kOld) {
      for (int64_t& slot : found) {
        slot = slots_[(tree - 1) * block_ + static_cast<size_t>(slot)];
      }
    }
    // weight() reads them next
    for (const int64_t slot : found) __builtin_prefetch(&HeldAt(slot));
    begin += count;
  }
}

FadedSumTree::Sum FadedSumTree::weight(int64_t slot) const {
  const Held& held = HeldAt(slot);
  if (IsOld(held.insertion)) return Sum{held.weight} * factors_[kOld];
  const Place place = PlaceOf(held.insertion);
  return Sum{trees_[place.tree].weight(place.slot)} * factors_[place.tree];
}

FadedSumTree::Sum FadedSumTree::total() const {
  Sum sum = 0;
  for (size_t i = 0; i < trees_.size(); ++i) {
    sum += Sum{trees_[i].total()} * factors_[i];
  }
  return sum;
}

}  // namespace replicant::replay
