#include "fleet/run_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

namespace replicant::fleet {
namespace {

constexpr auto kWatchInterval = std::chrono::milliseconds(250);

// Time between two writes of status.json: a second for up to 1,000 roles, and
// as much longer for more as the file is larger, up to half the time after
// which its readers call the fleet silent.
Clock::Duration ReportInterval(size_t num_roles) {
  return FromSeconds(
      std::clamp(static_cast<double>(num_roles) / 1000.0, 1.0, 5.0));
}

}  // namespace

RunWatch::RunWatch(const Options& options, RunFolder* folder,
                   FleetStatus* status, Clock* clock)
    : folder_(*folder),
      status_(*status),
      clock_(*clock),
      progress_(options.progress, *clock),
      curves_(folder->path(), options.curve_axis, options.curves,
              folder->disk(), clock) {
  status_.AddTo(progress_, options.fields);
  if (options.metrics_address.empty()) return;
  page_.emplace(options.metrics_address, folder->path().filename().string());
  spdlog::info("serving the metrics of every role at {}", page_->Url());
}

RunReport RunWatch::Report(const WatchedRun& run) {
  RunReport report = reporter_.Make(*run.supervisor, *run.monitor, run.pool,
                                    status_, clock_.Now());
  report.endpoint = run.endpoint;
  return report;
}

void RunWatch::Update(const WatchedRun& run) {
  const Clock::TimePoint now = clock_.Now();
  if (now < next_look_) return;
  next_look_ = now + kWatchInterval;
  const size_t num_roles = Look(run);
  curves_.Update(status_, *run.monitor);
  progress_.Update();
  if (now < next_report_) return;
  next_report_ = now + ReportInterval(num_roles);
  folder_.SetReport(Report(run).ToJson());
}

size_t RunWatch::Look(const WatchedRun& run) {
  const std::vector<Supervisor::RoleView> roles = run.supervisor->Roles();
  const std::vector<HeartbeatMonitor::Entry> beats =
      run.monitor->NewSince(&num_heard_);
  status_.Update(roles, beats, run.supervisor->IsStopping(), clock_.Now(),
                 folder_.DiskWaitSeconds());
  if (page_) page_->Update(roles, beats);
  followed_.resize(roles.size());
  for (size_t i = 0; i < roles.size(); ++i) {
    const Supervisor::RoleView& role = roles[i];
    if (role.incarnation == followed_[i]) continue;
    followed_[i] = role.incarnation;
    logs_.Follow(role.id.ToString(),
                 folder_.LogFile(role.id, role.incarnation));
  }
  return roles.size();
}

void RunWatch::AddLastPoint(const WatchedRun& run) {
  Look(run);
  curves_.Add(status_, *run.monitor);
}

void RunWatch::WriteLastReport(const WatchedRun& run) {
  folder_.SetLastReport(Report(run).ToJson());
}

}  // namespace replicant::fleet
