#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "learner/checkpoint_folder.h"
#include "learner/checkpointed_input.h"
#include "learner/workload.h"

namespace replicant::learner {

// Takes checkpoints of a whole run while it trains. A checkpoint cuts the run
// at one step:
//
//   1. The workload's input is paused. Training continues with batches under
//      way until none is left.
//   2. The learner's part is copied. The input starts to save its current state
//   and is no longer paused.
//   3. The learner's part is written. Once the input has saved itself, too, the
//      manifest is written.
//
// Step 1 waits a few seconds at most. Batches that arrive later, because actors
// are away, count as sampled in the checkpoint, but are not learned from. Step
// 3 runs during the training if there is a DiskQueue; otherwise the training
// waits in step 2 until the learner's part is written.
//
// A failed checkpoint is logged. Training continues, and the previous
// checkpoint remains.
//
// Thread-safety: one thread, the workload's.
class RunCheckpointer {
 public:
  // `seconds` returns the run's training time, for the manifest. `disk` may be
  // null. All outlive this object.
  RunCheckpointer(CheckpointFolder* folder, Workload* workload,
                  std::function<double()> seconds, Clock* clock,
                  DiskQueue* disk = nullptr);

  // The run continues from the checkpoint of `step`. Complete ones of later
  // steps are damaged, and are left out. Throws IoError.
  void ContinueFrom(int64_t step);
  // Begins a checkpoint, unless one is under way, the newest of this run is of
  // this step, or this is step 0, whose checkpoint would equal a new run.
  void Start(int64_t step);
  // Advances the checkpoint under way; called after each Step() of the
  // workload.
  void Advance(int64_t step);

  // Writes a checkpoint at the end of the run and waits until it is complete,
  // at most kLastSavePatience. `take_step` calls the workload's Step() and
  // returns the training step, or nothing if the run may make no more. Returns
  // why the checkpoint is not complete, with its step; empty if it is. That is
  // not logged. If only the input's part fails, the learner's part remains.
  [[nodiscard]] std::string SaveLast(
      int64_t step, const std::function<std::optional<int64_t>()>& take_step);

  // Less than the time that the fleet gives a role to end.
  static constexpr Clock::Duration kLastSavePatience = std::chrono::seconds(45);

  // Time when this process completed its newest checkpoint.
  std::optional<Clock::TimePoint> completed_at() const { return completed_at_; }
  // Failed checkpoints since then.
  int64_t num_failed() const { return num_failed_; }

 private:
  enum class Phase {
    kIdle,
    kDraining,
    kWriting,     // the learner's part
    kSaving,      // the input's part
    kCompleting,  // writing the manifest
  };

  bool IsWanted(int64_t step) const { return step > 0 && step != saved_step_; }
  void Pause();
  bool IsDrained() const;
  // Step 2. Returns false if the input cannot start, which is logged. Throws
  // Error if the learner's part fails. Then no checkpoint is under way.
  bool Cut(int64_t step);
  // Step 3, as far as possible without waiting. Throws as
  // CheckpointedInput::PollSaved(), CheckpointFolder::Save() and Complete() do.
  void Proceed();
  // Runs `work`. If it throws Error, calls Fail() and returns false.
  bool Guard(const std::function<void()>& work);
  // Ends the checkpoint under way. Logs the reason, unless it is the last one.
  void Fail(const std::string& why);
  // Waits for the end of step 3.
  void AwaitEnd(Clock::TimePoint deadline);
  // Waits until the learner's part is written. Throws IoError on failure or at
  // the deadline.
  void AwaitLearnersPart(Clock::TimePoint deadline);

  CheckpointFolder& folder_;
  Workload& workload_;
  CheckpointedInput* const input_;  // the workload's, or null
  const std::function<double()> run_seconds_;
  Clock& clock_;
  DiskQueue* const disk_;
  std::future<void> writing_;  // in kWriting and kCompleting
  Phase phase_ = Phase::kIdle;
  // of the checkpoint that the run continued from or completed last
  int64_t saved_step_ = 0;
  Clock::TimePoint drain_until_;
  Manifest manifest_;  // of the checkpoint under way, in kSaving
  Clock::TimePoint cut_at_;
  double cut_seconds_ = 0.0;  // time that Cut() delayed the training
  std::optional<Clock::TimePoint> completed_at_;
  int64_t num_failed_ = 0;
  bool is_last_ = false;
  std::string failure_;  // of the last checkpoint
};

}  // namespace replicant::learner
