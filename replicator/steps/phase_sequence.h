#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "replicator/steps/shared_input.h"

namespace replicant::replicator {

// The order in which a step runs its phases over the batches of an update
// (Replicator::BuildJoint). With K batches and phases 0 to P - 1:
//
//   batch 0 .. K - 1 arrives: phase 0 on it
//   after batch K - 1:        phase 1 on batches 0 .. K - 1, phase 2, ...
//
// So a later phase sees what an earlier one has updated. Batches are copied
// only where a later phase asks for an earlier batch.
class PhaseSequence {
 public:
  // Runs a phase on the input's current batch, number `batch` of its update.
  // Returns whether the run goes on.
  using RunPhase = std::function<bool(size_t phase, int64_t batch)>;

  // `input` must outlive this.
  PhaseSequence(SharedInput* input, size_t num_phases, int batches_per_update)
      : input_(*input),
        num_phases_(num_phases),
        batches_per_update_(batches_per_update) {}

  // Takes the batch that the input has fetched, and runs what is due. Returns
  // false as soon as `run_phase` does.
  [[nodiscard]] bool Advance(const RunPhase& run_phase);

  // Whether an update is made with this batch.
  bool IsLast(int64_t batch) const { return batch + 1 == batches_per_update_; }

 private:
  SharedInput& input_;
  const size_t num_phases_;
  const int64_t batches_per_update_;
  // of the next batch
  int64_t next_batch_ = 0;
};

}  // namespace replicant::replicator
