#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fleet/host_pool.h"
#include "fleet/log_follower.h"
#include "fleet/metrics_page.h"
#include "fleet/progress.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "fleet/run_curves.h"
#include "fleet/run_folder.h"
#include "fleet/run_report.h"
#include "fleet/status.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

// What the watch of a run reads. The pointers outlive the watch's last call.
struct WatchedRun {
  const Supervisor* supervisor = nullptr;
  const HeartbeatMonitor* monitor = nullptr;
  const HostPool* pool = nullptr;  // null without other hosts
  std::string endpoint;            // where the fleet takes requests
};

// Shows a run while it goes on: the progress line, the status, the curves,
// RUN/status.json, the page for Prometheus, and the warnings of the roles'
// logs. It looks at the run four times a second, as often as a progress line is
// rewritten on a terminal, and takes only new heartbeats in.
//
// Thread-safety: one thread. Make and destroy it while no other thread logs, as
// a ProgressLine.
class RunWatch {
 public:
  struct Options {
    ProgressOptions progress;
    std::vector<ProgressField> fields;  // of the progress line
    CurveAxis curve_axis;
    std::vector<CurveField> curves;  // none: no curves
    std::string metrics_address;     // of the page; empty: none
  };

  // `folder`, `status` and `clock` outlive the watch. Throws ConfigError if it
  // cannot listen at `metrics_address`.
  RunWatch(const Options& options, RunFolder* folder, FleetStatus* status,
           Clock* clock = &Clock::Real());

  LogFollower& logs() { return logs_; }

  // Shows the present state where it is due.
  void Update(const WatchedRun& run);
  // Takes the last heartbeats in, and writes the last point of the curves.
  void AddLastPoint(const WatchedRun& run);
  // Writes the last status.json.
  void WriteLastReport(const WatchedRun& run);

 private:
  // Returns the number of roles.
  size_t Look(const WatchedRun& run);
  RunReport Report(const WatchedRun& run);

  RunFolder& folder_;
  FleetStatus& status_;
  Clock& clock_;
  ProgressLine progress_;
  std::optional<MetricsPage> page_;
  RunCurves curves_;
  RunReporter reporter_;
  uint64_t num_heard_ = 0;          // cursor of HeartbeatMonitor::NewSince()
  std::vector<uint32_t> followed_;  // incarnations, in the order of the roles
  Clock::TimePoint next_look_{};
  Clock::TimePoint next_report_{};
  // after the progress line, above which its lines appear
  LogFollower logs_;
};

}  // namespace replicant::fleet
