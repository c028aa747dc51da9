#include "programs/learner/learner_report.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "base/clock.h"
#include "fleet/protocol/heartbeat.h"

namespace replicant::programs {

LearnerReport::LearnerReport(const fleet::HeartbeatSenderOptions& options,
                             const RunConfig& config, DiskQueue* disk)
    : config_(config), heartbeat_(options) {
  heartbeat_.SetGaugeSource("disk_wait_s",
                            [disk] { return disk->WaitSeconds(); });
}

void LearnerReport::Begin(int64_t step, double seconds) {
  last_.step = step;
  SetStep(step, seconds);
  heartbeat_.SetGaugeSource(
      "updates", [this] { return static_cast<double>(updates_.load()); });
  heartbeat_.SetGaugeSource("seconds", [this] { return seconds_.load(); });
}

void LearnerReport::SetStep(int64_t step, double seconds) {
  updates_ = step;
  seconds_ = seconds;
}

void LearnerReport::Show(const learner::Progress& progress,
                         learner::Workload& workload) {
  heartbeat_.SetGauge("updates_per_s", progress.steps_per_s);
  heartbeat_.SetWaited(progress.wait_seconds, progress.wait_reason);
  heartbeat_.SetGauge("frames", static_cast<double>(progress.frames));
  if (progress.epochs) heartbeat_.SetGauge("epochs", *progress.epochs);
  if (progress.checkpoint_age_s >= 0.0) {
    checkpoint_at_ = ToSeconds(Clock::Real().Now() - Clock::TimePoint()) -
                     progress.checkpoint_age_s;
    if (!std::exchange(has_checkpoint_, true)) {
      heartbeat_.SetGaugeSource("checkpoint_age_s", [this] {
        return ToSeconds(Clock::Real().Now() - Clock::TimePoint()) -
               checkpoint_at_;
      });
    }
  }
  heartbeat_.SetGauge("failed_checkpoints",
                      static_cast<double>(progress.num_failed_checkpoints));
  heartbeat_.SetCounter("dropped_records",
                        static_cast<double>(progress.num_dropped_records));
  // without a new step the scalars are old, or not computed
  if (progress.step > last_.step) {
    scalars_ = workload.Scalars();
    ShowScalars();
  }
  last_ = progress;
  spdlog::info("{}", ProgressText(config_, progress, scalars_));
}

void LearnerReport::ShowScalars() {
  // a heartbeat has 256 numbers, and forgets none
  constexpr size_t kMostNames = 200;
  for (const auto& [scalar, value] : scalars_) {
    const std::string name = "learner/" + scalar;
    if (!shown_names_.contains(name)) {
      if (shown_names_.size() == kMostNames || !fleet::IsNumberName(name)) {
        if (!std::exchange(has_warned_, true)) {
          spdlog::warn(
              "the fleet's metrics do not show '{}', and maybe others: want "
              "[A-Za-z0-9_./-]{{1,64}}, {} names in a run",
              name, kMostNames);
        }
        continue;
      }
      shown_names_.insert(name);
    }
    heartbeat_.SetGauge(name, value);
  }
}

}  // namespace replicant::programs
