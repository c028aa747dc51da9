// Three structures serve five kinds of selector: a sum tree draws by weight
// (prioritized, uniform), with or without a fade by age, a linked list gives
// the oldest or newest slot (fifo, lifo), and a binary heap gives the slot of
// lowest priority.
//
// Weights in the sum tree are whole numbers of 2^-20, or of 2^-50 where they
// fade, so that sums are exact and a restored table draws the same slots as the
// saved one. While all of them are zero, a set of bits finds the slots that are
// held.
#include "replay/table/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "replay/table/priority_weights.h"
#include "replay/table/sum_tree.h"

namespace replicant::replay {
namespace {

using internal::kUnitsPerWeight;
constexpr int32_t kNone = -1;

__extension__ using Wide = unsigned __int128;

// The j-th of `count` equal parts of [0, total) is [Part(j), Part(j + 1)).
template <typename Sum>
Sum Part(Sum total, size_t j, size_t count) {
  return static_cast<Sum>(Wide{total} * j / count);
}

// Uniform in {0, ..., count - 1}, as RandomStream::UniformInt().
uint64_t UniformBelow(RandomStream& random, uint64_t count) {
  return static_cast<uint64_t>(random.UniformInt(static_cast<int64_t>(count)));
}
// The same for counts below 2^127.
Wide UniformBelow(RandomStream& random, Wide count) {
  const Wide word = random();
  return word * static_cast<uint64_t>(count >> 64) +
         (word * static_cast<uint64_t>(count) >> 64);
}

// A random whole number in the j-th of `count` equal parts of [0, total). If
// that part holds none, because total < count, a number in all of [0, total).
template <typename Sum>
Sum DrawFromPart(RandomStream& random, Sum total, size_t j, size_t count) {
  Sum begin = Part(total, j, count);
  Sum end = Part(total, j + 1, count);
  if (begin == end) begin = 0, end = total;
  return begin + UniformBelow(random, end - begin);
}

// Many slots are served in blocks, whose arrays fit on the stack.
constexpr size_t kBlock = 256;

// Fills `draws` with stratified ones from `slots`, a SumTree or what has its
// total(), weight() and Find(). Precondition: slots.total() > 0.
template <typename Slots>
void DrawFrom(const Slots& slots, RandomStream& random, std::span<Draw> draws) {
  const auto total = slots.total();
  std::remove_const_t<decltype(total)> targets[kBlock];
  int64_t found[kBlock];
  for (size_t begin = 0; begin < draws.size(); begin += kBlock) {
    const size_t count = std::min(kBlock, draws.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      targets[i] = DrawFromPart(random, total, begin + i, draws.size());
    }
    slots.Find({targets, count}, {found, count});
    for (size_t i = 0; i < count; ++i) {
      draws[begin + i] = {found[i],
                          static_cast<double>(slots.weight(found[i])) /
                              static_cast<double>(total)};
    }
  }
}

// The held slots as one bit each, all of the same weight.
class SlotSet {
 public:
  explicit SlotSet(int64_t capacity)
      : words_(static_cast<size_t>(capacity + kBits - 1) / kBits) {}

  void Insert(int64_t slot) {
    WordOf(slot) |= BitOf(slot);
    ++size_;
  }
  void Remove(int64_t slot) {
    WordOf(slot) &= ~BitOf(slot);
    --size_;
  }
  uint64_t total() const { return size_; }
  uint64_t weight(int64_t /*slot*/) const { return 1; }

  // Writes to slots[i] the slot with ranks[i] smaller ones, for ranks below
  // total(). One pass over the words if the ranks do not fall.
  void Find(std::span<const uint64_t> ranks, std::span<int64_t> slots) const {
    size_t word = 0;
    uint64_t before = 0;  // slots in earlier words
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i] < before) word = 0, before = 0;
      while (ranks[i] - before >= CountIn(word)) before += CountIn(word++);
      uint64_t bits = words_[word];
      for (uint64_t rank = before; rank < ranks[i]; ++rank) bits &= bits - 1;
      slots[i] = static_cast<int64_t>(word) * kBits + std::countr_zero(bits);
    }
  }

 private:
  static constexpr int64_t kBits = 64;
  uint64_t& WordOf(int64_t slot) {
    return words_[static_cast<size_t>(slot / kBits)];
  }
  static uint64_t BitOf(int64_t slot) { return uint64_t{1} << (slot % kBits); }
  uint64_t CountIn(size_t word) const {
    return static_cast<uint64_t>(std::popcount(words_[word]));
  }

  uint64_t size_ = 0;
  std::vector<uint64_t> words_;
};

// kPrioritized, and kUniform with the same weight for every slot. The draws
// depend only on the slots, their weights and, in a FadedSumTree, their ages,
// not on the order of earlier calls; so a restored table draws the same slots
// as the saved one.
template <typename Tree>
class WeightedSelector : public Selector {
 public:
  WeightedSelector(Tree tree, int64_t capacity, bool is_uniform,
                   double exponent)
      : is_uniform_(is_uniform),
        exponent_(exponent),
        tree_(std::move(tree)),
        held_(capacity) {}

  void Insert(int64_t slot, double priority) override {
    SumTree::Weight weight;
    WeightsOf({&priority, 1}, &weight);
    if constexpr (kFades) {
      tree_.Insert(slot, weight);
    } else {
      tree_.Set(slot, weight);
    }
    held_.Insert(slot);
  }
  void Update(std::span<const int64_t> slots,
              std::span<const double> priorities) override {
    if (is_uniform_) return;
    SumTree::Weight weights[kBlock];
    for (size_t begin = 0; begin < slots.size(); begin += kBlock) {
      const size_t count = std::min(kBlock, slots.size() - begin);
      WeightsOf(priorities.subspan(begin, count), weights);
      tree_.Set(slots.subspan(begin, count), {weights, count});
    }
  }
  void Remove(int64_t slot) override {
    tree_.Set(slot, 0);
    held_.Remove(slot);
  }
  void AgeTo(uint64_t num_inserted) override {
    if constexpr (kFades) tree_.AgeTo(num_inserted);
  }
  bool CanSelect() const override { return held_.total() > 0; }

  void Select(RandomStream& random, std::span<Draw> draws) const override {
    REPLICANT_CHECK(CanSelect(), "no slot that can be drawn");
    if (tree_.total() > 0) {
      DrawFrom(tree_, random, draws);
    } else {
      DrawFrom(held_, random, draws);
    }
  }

  double mass() const override {
    return static_cast<double>(tree_.total()) / kUnitsOfTree;
  }

 private:
  static constexpr bool kFades = std::is_same_v<Tree, FadedSumTree>;
  static constexpr double kUnitsOfTree =
      kFades ? kUnitsPerWeight * FadedSumTree::kUnits : kUnitsPerWeight;

  void WeightsOf(std::span<const double> priorities,
                 SumTree::Weight* weights) const {
    if (is_uniform_) {
      std::fill_n(weights, priorities.size(),
                  static_cast<SumTree::Weight>(kUnitsPerWeight));
    } else {
      internal::WeightsOf(priorities.data(), priorities.size(), exponent_,
                          weights);
    }
  }

  const bool is_uniform_;
  const double exponent_;
  Tree tree_;
  SlotSet held_;
};

// A doubly linked list of the slots in the order of insertion.
class QueueSelector : public Selector {
 public:
  QueueSelector(int64_t capacity, bool takes_newest)
      : takes_newest_(takes_newest), links_(static_cast<size_t>(capacity)) {}

  void Insert(int64_t slot, double /*priority*/) override {
    const auto added = static_cast<int32_t>(slot);
    links_[Index(added)] = {.before = newest_, .after = kNone};
    (newest_ == kNone ? oldest_ : links_[Index(newest_)].after) = added;
    newest_ = added;
    ++size_;
  }
  void Update(std::span<const int64_t> /*slots*/,
              std::span<const double> /*priorities*/) override {}
  void Remove(int64_t slot) override {
    const Link link = links_[static_cast<size_t>(slot)];
    (link.before == kNone ? oldest_ : links_[Index(link.before)].after) =
        link.after;
    (link.after == kNone ? newest_ : links_[Index(link.after)].before) =
        link.before;
    --size_;
  }
  bool CanSelect() const override { return size_ > 0; }

  void Select(RandomStream& /*random*/, std::span<Draw> draws) const override {
    REPLICANT_CHECK(CanSelect(), "no slot");
    const Draw draw = {takes_newest_ ? newest_ : oldest_, 1.0};
    std::fill(draws.begin(), draws.end(), draw);
  }

  double mass() const override { return static_cast<double>(size_); }

 private:
  struct Link {
    int32_t before = kNone;
    int32_t after = kNone;
  };
  static size_t Index(int32_t slot) { return static_cast<size_t>(slot); }

  const bool takes_newest_;
  int64_t size_ = 0;
  int32_t oldest_ = kNone;
  int32_t newest_ = kNone;
  std::vector<Link> links_;  // [capacity], read for held slots only
};

// A binary heap of the slots by (priority, order of insertion), least on top.
class LowestPrioritySelector : public Selector {
 public:
  explicit LowestPrioritySelector(int64_t capacity)
      : entries_(static_cast<size_t>(capacity)) {}

  void Insert(int64_t slot, double priority) override {
    entries_[Index(slot)] = {priority, ++num_inserted_, heap_.size()};
    heap_.push_back(static_cast<int32_t>(slot));
    MoveUp(heap_.size() - 1);
  }
  void Update(std::span<const int64_t> slots,
              std::span<const double> priorities) override {
    for (size_t i = 0; i < slots.size(); ++i) {
      entries_[Index(slots[i])].priority = priorities[i];
      Restore(entries_[Index(slots[i])].place);
    }
  }
  void Remove(int64_t slot) override {
    const size_t place = entries_[Index(slot)].place;
    REPLICANT_CHECK(place < heap_.size() && heap_[place] == slot,
                    "slot {} is not held", slot);
    Put(place, heap_.back());
    heap_.pop_back();
    if (place < heap_.size()) Restore(place);
  }
  bool CanSelect() const override { return !heap_.empty(); }

  void Select(RandomStream& /*random*/, std::span<Draw> draws) const override {
    REPLICANT_CHECK(CanSelect(), "no slot");
    std::fill(draws.begin(), draws.end(), Draw{heap_.front(), 1.0});
  }

  double mass() const override { return static_cast<double>(heap_.size()); }

 private:
  struct Entry {
    double priority = 0.0;
    uint64_t order = 0;
    size_t place = 0;
  };
  static size_t Index(int64_t slot) { return static_cast<size_t>(slot); }

  bool IsBefore(int32_t a, int32_t b) const {
    const Entry& x = entries_[Index(a)];
    const Entry& y = entries_[Index(b)];
    return x.priority != y.priority ? x.priority < y.priority
                                    : x.order < y.order;
  }
  void Put(size_t place, int32_t slot) {
    heap_[place] = slot;
    entries_[Index(slot)].place = place;
  }
  void MoveUp(size_t place) {
    const int32_t slot = heap_[place];
    for (; place > 0 && IsBefore(slot, heap_[(place - 1) / 2]);
         place = (place - 1) / 2) {
      Put(place, heap_[(place - 1) / 2]);
    }
    Put(place, slot);
  }
  void MoveDown(size_t place) {
    const int32_t slot = heap_[place];
    for (size_t child = 2 * place + 1; child < heap_.size();
         child = 2 * place + 1) {
      if (child + 1 < heap_.size() &&
          IsBefore(heap_[child + 1], heap_[child])) {
        ++child;
      }
      if (!IsBefore(heap_[child], slot)) break;
      Put(place, heap_[child]);
      place = child;
    }
    Put(place, slot);
  }
  // The slot at `place` has a new priority, in either direction.
  void Restore(size_t place) {
    const int32_t slot = heap_[place];
    MoveUp(place);
    MoveDown(entries_[Index(slot)].place);
  }

  uint64_t num_inserted_ = 0;
  std::vector<int32_t> heap_;
  std::vector<Entry> entries_;  // [capacity], read for held slots only
};

}  // namespace

std::string_view ToString(SelectorKind kind) {
  switch (kind) {
    case SelectorKind::kPrioritized:
      return "prioritized";
    case SelectorKind::kUniform:
      return "uniform";
    case SelectorKind::kFifo:
      return "fifo";
    case SelectorKind::kLifo:
      return "lifo";
    case SelectorKind::kLowestPriority:
      return "lowest_priority";
  }
  REPLICANT_CHECK(false, "unknown SelectorKind {}", static_cast<int>(kind));
}

std::string WhyRefused(const PriorityFade& fade, SelectorKind kind) {
  if (!(fade.base > 0.0 && fade.base <= 1.0)) {
    return fmt::format("base {} is outside (0, 1]", fade.base);
  }
  if (!(fade.floor >= PriorityFade::kMinFloor && fade.floor <= 1.0)) {
    return fmt::format("floor {} is outside [{}, 1]", fade.floor,
                       PriorityFade::kMinFloor);
  }
  if (!fade.is_on()) return "";
  if (kind != SelectorKind::kPrioritized) {
    return fmt::format(
        "base {} fades priorities, which sampler {} does not use; allowed: "
        "base 1, or sampler prioritized",
        fade.base, ToString(kind));
  }
  if (fade.AgeAtFloor() > double{SumTree::kMaxCapacity}) {
    return fmt::format(
        "base {} reaches floor {} after {:.0f} items; allowed: at most {}",
        fade.base, fade.floor, fade.AgeAtFloor(), SumTree::kMaxCapacity);
  }
  return "";
}

std::unique_ptr<Selector> MakeSelector(SelectorKind kind, int64_t capacity,
                                       double priority_exponent,
                                       const PriorityFade& fade) {
  if (capacity < 1 || capacity > SumTree::kMaxCapacity) {
    throw InvalidArgument(
        fmt::format("MakeSelector: capacity {} is outside "
                    "[1, {}]",
                    capacity, SumTree::kMaxCapacity));
  }
  if (!(priority_exponent >= 0.0 && priority_exponent <= 1.0)) {
    throw InvalidArgument(
        fmt::format("MakeSelector: priority_exponent {} is outside [0, 1]",
                    priority_exponent));
  }
  const std::string why = WhyRefused(fade, kind);
  if (!why.empty()) {
    throw InvalidArgument(fmt::format("MakeSelector: priority_fade: {}", why));
  }
  const auto make_weighted = [&]<typename Tree>(Tree tree, double exponent) {
    return std::make_unique<WeightedSelector<Tree>>(
        std::move(tree), capacity, /*is_uniform=*/exponent == 0.0, exponent);
  };
  switch (kind) {
    case SelectorKind::kPrioritized:
      if (fade.is_on()) {
        return make_weighted(FadedSumTree(capacity, fade), priority_exponent);
      }
      return make_weighted(SumTree(capacity), priority_exponent);
    case SelectorKind::kUniform:
      return make_weighted(SumTree(capacity), 0.0);
    case SelectorKind::kFifo:
      return std::make_unique<QueueSelector>(capacity, /*takes_newest=*/false);
    case SelectorKind::kLifo:
      return std::make_unique<QueueSelector>(capacity, /*takes_newest=*/true);
    case SelectorKind::kLowestPriority:
      return std::make_unique<LowestPrioritySelector>(capacity);
  }
  REPLICANT_CHECK(false, "unknown SelectorKind {}", static_cast<int>(kind));
}

}  // namespace replicant::replay
