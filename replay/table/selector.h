#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/rng.h"
#include "replay/table/faded_sum_tree.h"

namespace replicant::replay {

enum class SelectorKind {
  kPrioritized,    // P(i) proportional to priority^exponent fade(age)
  kUniform,        // P(i) = 1 / number of slots
  kFifo,           // always the slot that was inserted first
  kLifo,           // always the slot that was inserted last
  kLowestPriority  // always the slot of lowest priority, the oldest of equals
};

// "prioritized", "uniform", "fifo", "lifo", "lowest_priority".
std::string_view ToString(SelectorKind kind);

// One drawn slot and the probability of drawing it.
struct Draw {
  int64_t slot = 0;
  double probability = 0.0;

  bool operator==(const Draw&) const = default;
};

// A Selector chooses one of its slots: the next item that a table samples, or
// the item that a full table removes.
//
// Slots are numbers in [0, capacity), each held at most once. Inserting a held
// slot, or updating or removing one that is not held, is a bug of the caller.
// Priorities are finite and >= 0 (IsPriority()).
//
// Thread-safety: const methods may run concurrently; the others need exclusive
// access. Shard holds the lock (replay/table/shard.h).
class Selector {
 public:
  virtual ~Selector() = default;

  virtual void Insert(int64_t slot, double priority) = 0;
  // Sets the priority of slots[i] to priorities[i], in order: for a repeated
  // slot the last one counts. One call for many slots is faster, since it
  // prefetches memory. Precondition: equal lengths.
  virtual void Update(std::span<const int64_t> slots,
                      std::span<const double> priorities) = 0;
  virtual void Remove(int64_t slot) = 0;
  // Raises the number of insertions to `num_inserted`, if it is smaller: slots
  // age, where weights fade, as though others had been inserted and removed.
  virtual void AgeTo(uint64_t /*num_inserted*/) {}

  // Whether Select() can choose a slot: whether one is held.
  virtual bool CanSelect() const = 0;

  // Fills `draws` from the same slots; removes none. kPrioritized chooses a
  // slot of priority zero only if all priorities are zero, and then draws
  // uniformly, as Reverb does. kPrioritized and kUniform stratify B draws: draw
  // j comes from the j-th of B equal parts of the cumulative probability, so
  // slot i is expected B P(i) times. Precondition: CanSelect() (checked;
  // aborts).
  virtual void Select(RandomStream& random, std::span<Draw> draws) const = 0;

  // The total weight of the slots: for kPrioritized the sum of
  // priority^exponent fade(age), each rounded as MakeSelector() says; otherwise
  // the number of slots. A reader of several services draws from each in
  // proportion to its mass.
  virtual double mass() const = 0;
};

// Returns why a selector of this kind cannot have `fade`, or "" if it can.
std::string WhyRefused(const PriorityFade& fade, SelectorKind kind);

// Creates a selector without slots. `priority_exponent` in [0, 1] is used by
// kPrioritized only: 0 is uniform, or by age alone if there is a `fade`.
// Throws InvalidArgument for a capacity outside [1, SumTree::kMaxCapacity], an
// exponent outside [0, 1] or a fade that WhyRefused() refuses.
//
// kPrioritized holds priority^exponent in units of 2^-20: at least one unit if
// the priority is not zero, at most 2^18. A fade multiplies these numbers and
// rounds again (replay/table/faded_sum_tree.h). Probabilities are computed from
// the held values, so that importance weights match the draws exactly.
std::unique_ptr<Selector> MakeSelector(SelectorKind kind, int64_t capacity,
                                       double priority_exponent = 1.0,
                                       const PriorityFade& fade = {});

}  // namespace replicant::replay
