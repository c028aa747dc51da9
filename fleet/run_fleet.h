#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/process.h"
#include "fleet/fleet_config.h"
#include "fleet/host_launcher.h"
#include "fleet/host_pool.h"
#include "fleet/missing_hosts.h"
#include "fleet/role.h"
#include "fleet/run_copy.h"
#include "fleet/run_curves.h"
#include "fleet/run_folder.h"
#include "fleet/scale_orders.h"
#include "fleet/status.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

// How other hosts take part in a run.
struct HostsOfRun {
  std::string endpoint;  // where they join: "tcp://10.0.0.2:7100"
  HostPool::Options pool;
  // Whether a fleet that has failed is started again at this endpoint: the
  // hosts then wait for it.
  bool is_restarted = false;
  // Agents that the fleet starts itself.
  std::vector<HostLauncher::Host> launched = {};
  // Hosts that the log names until they have joined.
  std::vector<MissingHosts::Host> expected = {};
};

struct FleetRun {
  FleetConfig config;
  uint64_t seed = 0;
  std::vector<RoleSpec> roles;
  // File with the key pair that fleet and roles share (rpc::GroupKey); empty:
  // none.
  std::string key_file = {};
  // Entries of the progress line on stderr; a problem comes before them.
  std::vector<ProgressField> progress;
  // Axes of the curves in the run's folder; no fields: no curves.
  CurveAxis curve_axis = {};
  std::vector<CurveField> curves = {};
  std::map<std::string, ScalableRole> scalable = {};  // by role
  // Copies the folder while the run goes on; null: nothing does.
  RunCopy* copy = nullptr;
  // None: all roles run on this machine.
  std::optional<HostsOfRun> hosts = {};
};

// Runs the roles as processes of this machine, and elastic ones on the hosts
// that join, until the run completes, fails or is stopped. The first signal
// that `stop` counts drains the roles in order, a second one kills them. All
// processes have ended when the function returns, and die if this process is
// killed. The folder's state records the end, or stays what it was before a
// resume with RunResult::is_mistake that not every role has started with;
// `status` holds the roles' last heartbeats. At the end the hosts are told to
// leave, except after a SIGTERM, or a failure with HostsOfRun::is_restarted: a
// stopped machine or batch job starts the run again later, and the hosts wait
// for it.
//
// A request to scale (ScaleRequest) changes the number of processes of a role
// in `scalable`; the requester hears why another one is refused.
//
// Call it from main(): the roles die with the calling thread. Throws
// InvalidArgument for roles that Supervisor refuses, and ConfigError if it
// cannot listen at config.metrics_address, or start the agent of a host.
// state.yaml then still says `running`; the caller sets the status.
RunResult RunFleet(const FleetRun& run, const StopSignal& stop,
                   RunFolder& folder, FleetStatus& status);

}  // namespace replicant::fleet
