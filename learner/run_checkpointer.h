#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "core/base/clock.h"
#include "learner/checkpoint_folder.h"
#include "learner/checkpointed_input.h"
#include "learner/workload.h"

namespace replicant::learner {

// Takes checkpoints of a whole run while it trains. A checkpoint cuts the run
// at one step:
//
//   1. The workload's input is paused. Training goes on with the batches under
//      way until none is left.
//   2. The learner's part is written. The input starts to save its present
//      state and is no longer paused.
//   3. Once the input has saved itself, beside the training, the manifest is
//      written.
//
// Step 1 waits a few seconds at most. Batches that come later, because actors
// are away, count as sampled in the checkpoint, but are not learned from.
//
// A checkpoint that fails is logged. Training goes on, and the checkpoint
// before stays.
//
// Thread-safety: one thread, the workload's.
class RunCheckpointer {
 public:
  // `seconds` returns the time that the run has trained, for the manifest. All
  // outlive this object.
  RunCheckpointer(CheckpointFolder* folder, Workload* workload,
                  std::function<double()> seconds, Clock* clock);

  // Begins a checkpoint, unless one is under way, the newest is of this step,
  // or this is step 0, where a checkpoint would equal a new run.
  void Start(int64_t step);
  // Goes on with the checkpoint under way; called after each Step() of the
  // workload. Waits only for the disk while it writes the learner's part.
  void Advance(int64_t step);

  // Writes a checkpoint at the end of the run and waits until it is complete.
  // `take_step` calls the workload's Step() and returns the training step, or
  // nothing if the run may not make another. Throws IoError if the learner's
  // part cannot be written. A failure of the input's part is logged and leaves
  // the checkpoint incomplete.
  void SaveLast(int64_t step,
                const std::function<std::optional<int64_t>()>& take_step);

 private:
  enum class Phase { kIdle, kDraining, kSaving };

  bool IsWanted(int64_t step) const;
  void Pause();
  bool IsDrained() const;
  // Step 2. Throws Error on failure; then no checkpoint is under way.
  void Cut(int64_t step);
  // Step 3, if the input's part is there. Throws as
  // CheckpointedInput::PollSaved() and CheckpointFolder::Complete() do.
  void TryComplete();
  // Runs `work`. If that throws Error, logs the reason and returns false.
  bool Guard(const std::function<void()>& work);
  void AwaitInputPart();

  CheckpointFolder& folder_;
  Workload& workload_;
  CheckpointedInput* const input_;  // the workload's, or null
  const std::function<double()> run_seconds_;
  Clock& clock_;
  Phase phase_ = Phase::kIdle;
  Clock::TimePoint drain_until_;
  Manifest manifest_;  // of the checkpoint under way, in kSaving
  Clock::TimePoint cut_at_;
  double cut_seconds_ = 0.0;  // time that Cut() held up the training
};

}  // namespace replicant::learner
