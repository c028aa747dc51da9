#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "core/base/rng.h"

namespace replicant::replay {

enum class SelectorKind {
  kPrioritized,    // P(i) proportional to priority^exponent
  kUniform,        // P(i) = 1 / number of slots
  kFifo,           // always the slot that was inserted first
  kLifo,           // always the slot that was inserted last
  kLowestPriority  // always the slot of lowest priority, the oldest of equals
};

// "prioritized", "uniform", "fifo", "lifo", "lowest_priority".
std::string_view ToString(SelectorKind kind);

// One drawn slot and the probability with which a draw gives it.
struct Draw {
  int64_t slot = 0;
  double probability = 0.0;

  bool operator==(const Draw&) const = default;
};

// A Selector chooses one of the slots that it holds: the item that a table
// samples next, or the item that it removes when it is full.
//
// Slots are numbers in [0, capacity), each held at most once. To insert a slot
// twice, or to update or remove a slot that is not held, is a bug of the
// caller. Priorities are finite and >= 0, as IsPriority() says.
//
// Thread-safety: const methods may run concurrently; the others need exclusive
// access. Shard holds the lock (replay/table/shard.h).
class Selector {
 public:
  virtual ~Selector() = default;

  virtual void Insert(int64_t slot, double priority) = 0;
  // Gives slots[i] priorities[i], in order: of a repeated slot the last one
  // counts. One call for many is faster: it fetches memory ahead.
  // Precondition: equal lengths.
  virtual void Update(std::span<const int64_t> slots,
                      std::span<const double> priorities) = 0;
  virtual void Remove(int64_t slot) = 0;

  // Whether Select() can choose a slot. kPrioritized never chooses a slot of
  // priority zero; all others do.
  virtual bool CanSelect() const = 0;

  // Fills `draws` from the same slots; removes none. kPrioritized and kUniform
  // stratify B draws: draw j comes from the j-th of B equal parts of the
  // cumulative probability, so slot i is expected B P(i) times.
  // Precondition: CanSelect() (checked; aborts).
  virtual void Select(RandomStream& random, std::span<Draw> draws) const = 0;

  // The total weight of the slots: the sum of priority^exponent for
  // kPrioritized, to 2^-20 each; the number of slots otherwise. A reader of
  // several services draws from each in proportion to it.
  virtual double mass() const = 0;
};

// Creates a selector without slots. `priority_exponent` in [0, 1] is used by
// kPrioritized only: 0 is uniform over the slots whose priority is not zero.
// Throws InvalidArgument for a capacity outside [1, SumTree::kMaxCapacity] or
// an exponent outside [0, 1].
//
// kPrioritized holds priority^exponent in units of 2^-20: at least one unit if
// the priority is not zero, at most 2^18. Probabilities are those of the held
// values, so that importance weights match the draws exactly.
std::unique_ptr<Selector> MakeSelector(SelectorKind kind, int64_t capacity,
                                       double priority_exponent = 1.0);

}  // namespace replicant::replay
