#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <string>

#include "base/disk_queue.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "learner/learner.h"
#include "programs/learner/learner_alone.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

// A learner's reports while it runs: the numbers of its heartbeats, and a log
// line for each report.
//
// Thread-safety: one thread makes all calls; the heartbeat's thread reads the
// numbers.
class LearnerReport {
 public:
  // `config` and `disk` must outlive the report.
  LearnerReport(const fleet::HeartbeatSenderOptions& options,
                const RunConfig& config, DiskQueue* disk);

  fleet::HeartbeatSender& heartbeat() { return heartbeat_; }

  // Shows the step that the learner begins with, and the seconds before it.
  void Begin(int64_t step, double seconds);
  // Counts a step.
  void SetStep(int64_t step, double seconds);
  // Shows the progress, and the scalars of `workload` after a new step.
  void Show(const learner::Progress& progress, learner::Workload& workload);

  // The last progress, and the scalars of the last step that was shown.
  const learner::Progress& last() const { return last_; }
  const Scalars& scalars() const { return scalars_; }

 private:
  // Puts the scalars into the heartbeats, by the names of their curves.
  void ShowScalars();

  const RunConfig& config_;
  // read by the heartbeat's thread
  std::atomic<int64_t> updates_ = 0;
  std::atomic<double> seconds_ = 0.0;
  std::atomic<double> checkpoint_at_ = 0.0;  // on the steady clock
  bool has_checkpoint_ = false;
  fleet::HeartbeatSender heartbeat_;
  learner::Progress last_;
  Scalars scalars_;
  std::set<std::string> shown_names_;
  bool has_warned_ = false;
};

}  // namespace replicant::programs
