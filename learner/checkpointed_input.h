#pragma once

#include <cstdint>
#include <filesystem>

#include "replay/client/checkpoint_state.h"

namespace replicant::learner {

// The input of a workload as a checkpoint of the run sees it
// (learner/run_checkpointer.h): it can be paused until nothing is under way,
// saved beside the training, and limited to the batches that will be used.
//
// Thread-safety: one thread, the workload's.
class CheckpointedInput {
 public:
  virtual ~CheckpointedInput() = default;

  // Workload::Step() will be called for `num_batches` more batches; the input
  // need not fetch any beyond them.
  virtual void SetLimit(int64_t /*num_batches*/) {}
  // While the input is paused the workload asks for no new batch: Step() learns
  // from the batches under way and then gives kTimeout.
  virtual void SetPaused(bool is_paused) = 0;
  // Returns whether a Step() since SetPaused(true) has found nothing left.
  virtual bool IsDrained() const = 0;

  // Starts to save the input as it is now, under the number `id`; `folder`
  // takes what has no other place. Does not wait. Throws Error if it cannot.
  virtual void StartSaving(uint64_t /*id*/,
                           const std::filesystem::path& /*folder*/) {}
  // Returns the state of what StartSaving() has started. Throws Error with the
  // reason if the input could not be saved.
  virtual replay::CheckpointState PollSaved() {
    return replay::CheckpointState::kNotKept;
  }
};

}  // namespace replicant::learner
