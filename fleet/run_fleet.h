#pragma once

#include <cstdint>
#include <vector>

#include "core/base/process.h"
#include "fleet/fleet_config.h"
#include "fleet/role.h"
#include "fleet/run_folder.h"
#include "fleet/status.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

struct FleetRun {
  FleetConfig config;
  uint64_t seed = 0;
  std::vector<RoleSpec> roles;
  // Of the progress line on stderr; the limit is added.
  std::vector<ProgressField> progress;
};

// Runs the roles as processes of this machine until the run is complete, has
// failed or is stopped: SIGINT or SIGTERM once drains every role in order, a
// second time kills them. No process is left when it returns, nor when this
// process is killed. The end is in the folder's state.
//
// `stop` counts the signals, `status` tells afterwards what the roles said
// last.
//
// Call it from main(): the roles die with the calling thread. Throws
// InvalidArgument for roles that Supervisor refuses.
RunResult RunFleet(const FleetRun& run, const StopSignal& stop,
                   RunFolder& folder, FleetStatus& status);

}  // namespace replicant::fleet
