#pragma once

#include <cstdint>
#include <vector>

#include "core/base/process.h"
#include "fleet/fleet_config.h"
#include "fleet/role.h"
#include "fleet/run_curves.h"
#include "fleet/run_folder.h"
#include "fleet/status.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

struct FleetRun {
  FleetConfig config;
  uint64_t seed = 0;
  std::vector<RoleSpec> roles;
  // File of the key pair that fleet and roles hold (rpc::GroupKey); empty:
  // none.
  std::string key_file = {};
  // Entries of the progress line on stderr, behind the problem, if there is
  // one.
  std::vector<ProgressField> progress;
  // Curves of the run's folder, and what they are over; no fields: no curves.
  CurveAxis curve_axis = {};
  std::vector<CurveField> curves = {};
};

// Runs the roles as processes of this machine until the run completes, fails or
// is stopped. The first SIGINT or SIGTERM (counted by `stop`) drains the roles
// in order, the second one kills them. No process is left when the function
// returns, nor when this process is killed. The folder's state records the end;
// `status` holds the last heartbeats of the roles.
//
// Call it from main(): the roles die with the calling thread. Throws
// InvalidArgument for roles that Supervisor refuses, and ConfigError if
// config.metrics_address cannot be listened on.
RunResult RunFleet(const FleetRun& run, const StopSignal& stop,
                   RunFolder& folder, FleetStatus& status);

}  // namespace replicant::fleet
