#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "replicator/steps/gradient_sums.h"
#include "replicator/steps/shared_input.h"
#include "replicator/steps/step_values.h"

// The phases of a step (Replicator::BuildJoint): how they are built for the
// batches of an update, and the order in which they run on them.
namespace replicant::replicator {

// A phase, as it is built for batches of one role.
template <typename Built>
struct BuiltPhase {
  Built last;
  // For all batches of an update but the last; none for a phase that runs on
  // each batch alone.
  std::optional<Built> earlier;
};

// Replaces both by fn(), the earlier batches' first.
template <typename Built, typename Fn>
auto MapPhase(BuiltPhase<Built> phase, const Fn& fn) {
  using Result = std::invoke_result_t<const Fn&, Built>;
  std::optional<Result> earlier;
  if (phase.earlier) earlier.emplace(fn(std::move(*phase.earlier)));
  return BuiltPhase<Result>{.last = fn(std::move(phase.last)),
                            .earlier = std::move(earlier)};
}

// Builds the phases of all steps of a replicator.
class PhaseBuilder {
 public:
  // Batches per update.
  explicit PhaseBuilder(int accumulation_steps)
      : accumulation_steps_(accumulation_steps) {}

  int accumulation_steps() const { return accumulation_steps_; }

  // Calls build(accumulation) for every role that the batches of an update
  // have. accumulates(built) tells whether a phase, built for an earlier batch,
  // adds up gradients; one that does not is built for single batches.
  template <typename Build, typename Accumulates>
  auto operator()(const Build& build, const Accumulates& accumulates) {
    using Built = std::invoke_result_t<const Build&, const Accumulation&>;
    Accumulation accumulation;
    std::optional<Built> earlier;
    if (accumulation_steps_ > 1) {
      accumulation = {.steps = accumulation_steps_,
                      .phase_number = num_accumulating_,
                      .role = BatchRole::kEarlier};
      earlier.emplace(build(accumulation));
      accumulation.role = BatchRole::kLast;
      if (std::invoke(accumulates, *earlier)) {
        ++num_accumulating_;
      } else {
        earlier.reset();
        accumulation = {};
      }
    }
    return BuiltPhase<Built>{.last = build(accumulation),
                             .earlier = std::move(earlier)};
  }

 private:
  int accumulation_steps_;
  int num_accumulating_ = 0;
};

// The number of batches of an update of a step with these phases.
template <typename Built>
int BatchesPerUpdate(const std::vector<BuiltPhase<Built>>& phases,
                     int accumulation_steps) {
  for (const BuiltPhase<Built>& phase : phases) {
    if (phase.earlier) return accumulation_steps;
  }
  return 1;
}

// The plans of a step. With K batches per update and phases 0 to P - 1:
//
//   batch 0 .. K - 1 arrives: phase 0 on it
//   after batch K - 1:        phase 1 on batches 0 .. K - 1, phase 2, ...
//
// So a later phase sees what an earlier one has updated. Batches are copied
// only where a later phase asks for an earlier batch.
template <typename Plan>
class StepPhases {
 public:
  // `input` must outlive this.
  StepPhases(SharedInput* input, ValueNames names,
             std::vector<BuiltPhase<Plan>> phases, int accumulation_steps)
      : input_(*input),
        names_(std::move(names)),
        phases_(std::move(phases)),
        batches_per_update_(BatchesPerUpdate(phases_, accumulation_steps)) {
    for (BuiltPhase<Plan>& phase : phases_) newest_.push_back(&phase.last);
  }

  size_t size() const { return phases_.size(); }
  // The plan of the first phase's update.
  const Plan& first() const { return phases_[0].last; }
  // By phase: the plan that Select() gave last.
  const std::vector<Plan*>& newest() const { return newest_; }

  // Takes the batch that the input has fetched, and runs what is due:
  // run(phase, batch) runs a phase on the input's current batch, number `batch`
  // of its update, and returns whether the run goes on. Returns false as soon
  // as it does.
  template <typename Run>
  [[nodiscard]] bool Advance(const Run& run) {
    const int64_t batch = next_batch_;
    next_batch_ = (next_batch_ + 1) % batches_per_update_;
    const bool keeps = phases_.size() > 1 && batches_per_update_ > 1;

    input_.Use();
    if (keeps) input_.Keep(static_cast<size_t>(batch));
    if (!run(size_t{0}, batch)) return false;
    if (!IsLast(batch)) return true;

    for (size_t phase = 1; phase < phases_.size(); ++phase) {
      for (int64_t kept = 0; kept < batches_per_update_; ++kept) {
        if (keeps) input_.Recall(static_cast<size_t>(kept));
        if (!run(phase, kept)) return false;
      }
    }
    return true;
  }
  int64_t batches_per_update() const { return batches_per_update_; }
  // Whether an update is made with this batch.
  bool IsLast(int64_t batch) const { return batch + 1 == batches_per_update_; }
  // The plan of a phase for this batch, whose values are the newest from now
  // on.
  Plan& Select(size_t phase, int64_t batch) {
    BuiltPhase<Plan>& built = phases_[phase];
    newest_[phase] =
        IsLast(batch) || !built.earlier ? &built.last : &*built.earlier;
    return *newest_[phase];
  }

  TensorView value(std::string_view name) const {
    const ValueNames::Place place = names_.Find(name);
    return newest_[place.phase]->value(place.index);
  }

 private:
  SharedInput& input_;
  const ValueNames names_;
  std::vector<BuiltPhase<Plan>> phases_;
  const int64_t batches_per_update_;
  std::vector<Plan*> newest_;
  int64_t next_batch_ = 0;
};

}  // namespace replicant::replicator
