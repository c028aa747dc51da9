#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/metrics/rate_meter.h"
#include "fleet/host_pool.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "fleet/status.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

// The state of a run at one moment. Its fleet writes it into RUN/status.json
// once a second, so that every host that sees the folder can show it.
struct RunReport {
  struct Role {
    std::string name;      // "actor-3"
    std::string state;     // "pending", "starting", "running", "waiting", ...
    std::string reason;    // of a wait or a restart
    uint32_t process = 0;  // 0: none yet
    std::string host;      // where it runs; empty: the fleet's
    int64_t num_failures = 0;  // since this start of the run
    std::string last_failure;
    // from its last heartbeat, and the growth of its counters per second
    std::map<std::string, double> numbers;
    std::map<std::string, double> rates;
  };

  std::string status;          // of the run: "running", ...
  std::string fleet;           // HostAndPid()
  std::string endpoint;        // where it takes requests: "tcp://..."
  double time = 0.0;           // of the report: seconds since 1970
  std::string limit, problem;  // FleetStatus
  std::vector<Role> roles;
  std::vector<HostPool::HostView> hosts;  // joined

  std::string ToJson() const;
  // Throws IoError if the file cannot be read, or does not exist: the message
  // then has the run's status.
  static RunReport Read(const std::filesystem::path& run_folder);
  // Lines for a terminal; `now` in seconds since 1970.
  std::string Table(double now) const;
};

// Makes the reports of a run.
//
// Thread-safety: one thread at a time.
class RunReporter {
 public:
  // `pool` is null without other hosts.
  RunReport Make(const Supervisor& supervisor, const HeartbeatMonitor& monitor,
                 const HostPool* pool, const FleetStatus& status,
                 Clock::TimePoint now);

 private:
  // by role, then by number
  std::map<RoleId, std::map<std::string, metrics::RateMeter>> meters_;
};

}  // namespace replicant::fleet
