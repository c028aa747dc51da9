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
//   1. the workload's input is paused, and training goes on with what is under
//      way, until nothing is;
//   2. the learner's part is written, the input is told to save itself as it
//      is now, and goes on;
//   3. once the input has done so, beside the training, the manifest is
//      written.
//
// Input that does not come within a few seconds, because actors are away, is
// not waited for: its items count as sampled, and nobody learns from them.
//
// One that fails is logged, and costs nothing but itself: the training goes on,
// and the checkpoint before stays.
//
// Thread-safety: one thread, the workload's.
class RunCheckpointer {
 public:
  // `seconds` says for how long the run has trained (Manifest). All outlive
  // this object.
  RunCheckpointer(CheckpointFolder* folder, Workload* workload,
                  std::function<double()> seconds, Clock* clock);

  // Begins a checkpoint, unless one is under way or the newest is of this step.
  // One of step 0 holds nothing that a new run has not.
  void Start(int64_t step);
  // Goes on with the one under way, after each Step() of the workload. Waits
  // for the disk while it writes the learner's part, and for nothing else.
  void Advance(int64_t step);

  // Writes one of the end of the run, and waits for all of it. `take_step`
  // calls the workload's Step() and gives the training step then, or nothing if
  // there may be no more. Throws IoError if the learner's part cannot be
  // written. Without the input's part, which is logged, it stays incomplete.
  void SaveLast(int64_t step,
                const std::function<std::optional<int64_t>()>& take_step);

 private:
  enum class Phase { kIdle, kDraining, kSaving };

  bool IsWanted(int64_t step) const;
  void Pause();
  bool IsDrained() const;
  // Step 2. Throws Error, with nothing under way, if it cannot be done.
  void Cut(int64_t step);
  // Step 3, if the input's part is there. Throws as
  // CheckpointedInput::PollSaved() and CheckpointFolder::Complete() do.
  void TryComplete();
  // Runs `work`; false, with the reason logged, if that throws.
  bool Guard(const std::function<void()>& work);
  void AwaitInputPart();

  CheckpointFolder& folder_;
  Workload& workload_;
  CheckpointedInput* const input_;  // the workload's, or null
  const std::function<double()> run_seconds_;
  Clock& clock_;
  Phase phase_ = Phase::kIdle;
  Clock::TimePoint drain_until_;
  Manifest manifest_;  // kSaving: of the one under way
  Clock::TimePoint cut_at_;
  double cut_seconds_ = 0.0;  // that the training stood still for
};

}  // namespace replicant::learner
