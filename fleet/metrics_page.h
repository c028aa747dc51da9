#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/metrics/exposer.h"
#include "base/metrics/registry.h"
#include "fleet/fleet_config.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

// One Prometheus page with the numbers of every role's heartbeats, served by
// the fleet. Each series has the labels `run`, `role` and `index`:
//
//   replicant_fleet_role_up                     1 while the role runs, else 0
//   replicant_fleet_role_restarts_total         since the fleet started
//   replicant_fleet_role_waiting_seconds_total  time that the role has waited
//   replicant_role_NUMBER                       a gauge of its heartbeats
//   replicant_role_NUMBER_total                 a counter of its heartbeats
//   replicant_ROLE_NUMBER[_total]               the same for "ROLE/NUMBER"
//
// Characters that Prometheus does not allow in a name become '_'. A counter
// continues over restarts of its role. A role that has ended keeps its last
// numbers. The page shows at most 10000 roles.
//
// Thread-safety: one thread at a time; scrapes run on threads of the page.
class MetricsPage {
 public:
  // Listens at `address`, "<IPv4 address>:<port>", for the run named `run`.
  // Throws ConfigError, naming fleet.metrics_address, if the address is
  // malformed or cannot be bound.
  MetricsPage(const std::string& address, std::string run);

  // Updates the page to the current state. O(roles * numbers * log).
  void Update(const std::vector<Supervisor::RoleView>& roles,
              const std::vector<HeartbeatMonitor::Entry>& beats);

  int port() const { return exposer_.port(); }
  // "http://127.0.0.1:9464/metrics".
  std::string Url() const { return exposer_.Url(); }

 private:
  // A counter of the page, fed with totals that restart at zero with each
  // incarnation.
  struct Total {
    metrics::Counter* counter = nullptr;
    double last = 0.0;
  };
  struct Member {
    metrics::Gauge* up = nullptr;
    metrics::Counter* restarts = nullptr;
    Total waiting;
    std::map<std::string, metrics::Gauge*> gauges;
    std::map<std::string, Total> totals;
    uint32_t first_incarnation = 0;  // 0: not started yet
    uint32_t incarnation = 0;        // of the numbers
    // set when the registry refuses a series; no more are added then
    bool is_refused = false;
  };

  metrics::Labels LabelsOf(const RoleId& id) const;
  // The member of `id`, made if absent; nullptr beyond the maximum.
  Member* MemberOf(const RoleId& id);
  void TakeIn(const Heartbeat& beat);
  // Adds the series of a number unless it exists or cannot be added.
  void AddSeries(const RoleId& id, const std::string& name,
                 BeatNumber::Kind kind, Member* member);

  const std::string run_;
  metrics::Registry registry_;
  metrics::Exposer exposer_;
  std::map<RoleId, Member> members_;
};

// The key of the page's address.
inline constexpr std::string_view kMetricsKey = "fleet.metrics_address";

// Throws ConfigError, with the key, if `address` is set and cannot be bound.
// Lets a program check it before it makes a run folder.
void CheckMetricsAddress(std::string_view key, const std::string& address);

}  // namespace replicant::fleet
