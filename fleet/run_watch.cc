#include "fleet/run_watch.h"

#include <spdlog/spdlog.h>

#include <chrono>

namespace replicant::fleet {
namespace {

constexpr auto kReportInterval = std::chrono::seconds(1);

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
  const std::vector<Supervisor::RoleView> roles = run.supervisor->Roles();
  const std::vector<HeartbeatMonitor::Entry> beats = run.monitor->All();
  status_.Update(roles, beats, run.supervisor->IsStopping(), now,
                 folder_.DiskWaitSeconds());
  if (page_) page_->Update(roles, beats);
  for (const Supervisor::RoleView& role : roles) {
    if (role.incarnation == 0) continue;
    logs_.Follow(role.id.ToString(),
                 folder_.LogFile(role.id, role.incarnation));
  }
  curves_.Update(status_, beats);
  progress_.Update();
  if (now >= next_report_) {
    next_report_ = now + kReportInterval;
    folder_.SetReport(Report(run).ToJson());
  }
}

void RunWatch::AddLastPoint(const WatchedRun& run) {
  curves_.Add(status_, run.monitor->All());
}

void RunWatch::WriteLastReport(const WatchedRun& run) {
  folder_.SetLastReport(Report(run).ToJson());
}

}  // namespace replicant::fleet
