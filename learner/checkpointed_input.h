#pragma once

#include <cstdint>
#include <filesystem>

#include "replay/client/checkpoint_state.h"

namespace replicant::learner {

// A workload's input, as seen by the checkpoints of a run
// (learner/run_checkpointer.h): it can be paused until nothing is under way,
// saved during the training, and limited to the batches that will be used.
//
// Thread-safety: one thread, the workload's.
class CheckpointedInput {
 public:
  virtual ~CheckpointedInput() = default;

  // Announces that the steps to come, other than those under way, use
  // `num_batches` more batches. The input gives none beyond them: replicas that
  // do not wait for each other would learn from batches that no step counts. A
  // step that takes several batches may need more: after each Step() without a
  // batch the learner announces again.
  virtual void SetLimit(int64_t /*num_batches*/) {}
  // While the input is paused, the workload requests no new batch: Step() uses
  // the batches under way and then returns kTimeout.
  virtual void SetPaused(bool is_paused) = 0;
  // Returns whether a Step() since SetPaused(true) has found nothing left.
  virtual bool IsDrained() const = 0;

  // Starts to save the input as it is now, under the number `id`; Parts that
  // are stored nowhere else go to `folder`. Does not wait. Throws Error if it
  // cannot.
  virtual void StartSaving(uint64_t /*id*/,
                           const std::filesystem::path& /*folder*/) {}
  // Restores the parts that StartSaving() put into `folder`.
  virtual void Restore(const std::filesystem::path& /*folder*/) {}
  // Returns the state of the save that StartSaving() began. Throws Error with
  // the reason if it failed.
  virtual replay::CheckpointState PollSaved() {
    return replay::CheckpointState::kNotKept;
  }
};

}  // namespace replicant::learner
