#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/metrics/curves.h"
#include "base/metrics/json_lines.h"
#include "learner/checkpoint_folder.h"
#include "learner/learner_config.h"
#include "learner/parameter_publisher.h"
#include "learner/run_checkpointer.h"
#include "learner/workload.h"

namespace replicant::learner {

enum class EndReason {
  kStepLimit,
  kTimeLimit,
  kFrameLimit,
  kEpochLimit,
  kEndOfInput,
  kStopped,  // LearnerHooks::should_stop
};
std::string_view ToString(EndReason reason);

// The progress of a run at a report.
struct Progress {
  int64_t step = 0;      // training steps since the run began
  double seconds = 0.0;  // of training since the run began, over all resumes
  double steps_per_s = 0.0;  // since the last report
  // Share of the time since the last report spent waiting for input, in [0,
  // 1].
  double wait_share = 0.0;
  double wait_seconds = 0.0;     // in this process
  std::string wait_reason;       // empty unless the last Step() timed out
  int64_t frames = 0;            // Workload::NumFrames()
  std::optional<double> epochs;  // Workload::NumEpochs()
  // Seconds since the newest complete checkpoint, or without one since the
  // start of this process; negative if there are none during the training.
  double checkpoint_age_s = -1.0;
  int64_t num_failed_checkpoints = 0;  // since the newest complete one
  int64_t num_dropped_records = 0;     // of the curves
};

struct LearnerHooks {
  // Called between steps and in evaluations; true ends the run.
  std::function<bool()> should_stop = [] { return false; };
  // Called after each step with the steps and seconds of Progress; cheap.
  std::function<void(int64_t step, double seconds)> on_step = [](int64_t,
                                                                 double) {};
  // Called every log_interval_s and at the end.
  std::function<void(const Progress&)> on_progress = [](const Progress&) {};
  // The configuration of the run, YAML, for TensorBoard; empty for none.
  std::string config_yaml = {};
};

// Takes part in the steps of another process's learner, or serves them, until
// that learner ends or should_stop() is true.
void Follow(
    Workload& workload,
    const std::function<bool()>& should_stop = [] { return false; },
    Clock& clock = Clock::Real());

// Runs a workload to its end: steps, curves, checkpoints, published parameters.
//
// The folder of the run gets
//
//   checkpoints/step-...   see RunCheckpointer
//   NAME/step-....png      the workload's pictures
//   learner.jsonl          one line every log_interval_s
//   by_updates/learner, by_frames/learner
//                          the same for TensorBoard, with histograms and the
//                          configuration as text (see metrics::Curves)
//
// The run resumes from the newest complete checkpoint, if there is one.
//
// The means of a workload's scalars since the previous line appear as
// "learner/<name>", next to "learner/steps_per_s", "learner/wait_share" and
// "learner/frames". Scalars "evaluation_..." and histograms come from the last
// step.
//
// Thread-safety: one thread, the workload's.
class Learner {
 public:
  // `workload`, `clock` and `disk` outlive the learner. `disk` writes curves,
  // pictures and checkpoints; null: the training waits for the disk. Publishes
  // the first parameters. Throws IoError if the folder cannot be written or a
  // checkpoint does not fit, CommError if the parameters' address cannot be
  // bound, InvalidArgument if the parameters are more than subscribers take.
  Learner(const LearnerConfig& config, const std::filesystem::path& folder,
          Workload* workload, LearnerHooks hooks = {},
          Clock* clock = &Clock::Real(), DiskQueue* disk = nullptr);

  // Trains to the end of the run and writes a last checkpoint. Throws what the
  // workload's Step() throws (a runtime::NumericError names the step).
  // Checkpoints that fail are logged and tried again after the interval, except
  // the last one: a limit that is reached ends the run all the same.
  EndReason Run();
  // After Run(): why the last checkpoint is not complete, with its step; empty
  // if it is.
  const std::string& unsaved() const { return unsaved_; }

  int64_t step() const { return step_; }
  // Seconds of training since the run began, over all resumes.
  double seconds() const;

 private:
  struct Interval {
    Clock::TimePoint next;
    Clock::Duration length{0};

    // Returns whether the interval has passed, and if so starts the next one.
    bool HasPassed(Clock::TimePoint now);
  };

  std::optional<EndReason> FindEnd() const;
  bool IsAtStepLimit() const {
    return config_.limits.max_steps > 0 && step_ >= config_.limits.max_steps;
  }
  // Workload::Step(); adds the step to a NumericError.
  NextResult RunStep();
  void TakeStep();
  // Tells the input how many batches the steps up to the limit need.
  void AnnounceLimit();
  void AddScalars();
  void Report(Clock::TimePoint now);
  void WritePictures();
  void Publish();

  const LearnerConfig config_;
  Workload& workload_;
  const LearnerHooks hooks_;
  const std::filesystem::path folder_;
  Clock& clock_;
  DiskQueue* const disk_;
  CheckpointFolder checkpoints_;
  RunCheckpointer run_checkpointer_;
  metrics::Curves curves_;
  metrics::JsonLinesWriter lines_;
  std::string unsaved_;
  std::optional<ParameterPublisher> parameters_;

  int64_t step_ = 0;
  bool is_input_over_ = false;
  std::string wait_reason_;
  double seconds_before_ = 0.0;            // before the resume
  std::optional<Clock::TimePoint> start_;  // of Run()
  Interval report_, publish_, checkpoint_;
  // the last report
  Clock::TimePoint reported_at_;
  int64_t reported_step_ = 0;
  double reported_wait_s_ = 0.0;
  // sums of the scalars of the steps since then
  struct ScalarSum {
    std::string name;
    double sum = 0.0;
    int64_t count = 0;
  };
  std::vector<ScalarSum> sums_;
  int64_t published_step_ = -1;
};

}  // namespace replicant::learner
