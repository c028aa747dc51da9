#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "agents/task_spec.h"
#include "fleet/placement.h"
#include "fleet/role.h"
#include "fleet/run_curves.h"
#include "fleet/status.h"
#include "programs/run/commands.h"
#include "programs/run/run_config.h"

// The processes of a run, described for placement and supervisor.
namespace replicant::programs {

// Returns the roles on the launcher's host, with the processors that they
// request.
std::vector<fleet::RoleRequest> RoleRequests(const RunConfig& config);
// Returns the roles that run on the hosts that join; none without such hosts.
std::vector<fleet::RoleId> RemoteRoles(const RunConfig& config);
// Whether the run starts and goes on while such a role waits for a host.
bool WaitsAlone(const RunConfig& config, const fleet::RoleId& id);

// Input of MakeRole() that all roles share.
struct RolePlan {
  const RunConfig& config;
  const Commands& commands;
  // Undefined for a run without actors.
  agents::TaskSpec task;
  std::filesystem::path run_folder;
  // Folder of the checkpoints of replay and parameter servers.
  std::filesystem::path storage_folder;
  std::filesystem::path config_file;  // read by every role
  std::filesystem::path key_file;     // of the run's key pair; empty: none
  // evaluation::FindBeginning(), in milliseconds.
  std::string began_ms;
};

// Describes one role to the supervisor: its command, its stages, the meaning of
// its end. Throws IoError if the run's checkpoints cannot be read.
fleet::RoleSpec MakeRole(const fleet::PlacedRole& placed, const RolePlan& plan);

// Returns the fields of the progress line.
std::vector<fleet::ProgressField> ProgressFields(const RunConfig& config);

// Returns the curves that come from heartbeats; none without actors.
std::vector<fleet::CurveField> CurveFields(const RunConfig& config);

}  // namespace replicant::programs
