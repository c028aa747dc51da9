#pragma once

#include <string>
#include <vector>

#include "core/base/thread.h"
#include "core/rpc/heartbeat.h"
#include "fleet/restart_policy.h"

namespace replicant::fleet {

// One process of a run, as the supervisor keeps it alive.
struct RoleSpec {
  enum class OnSuccess {
    kRestart,       // should not have ended: as a failure
    kDone,          // has done its part
    kCompletesRun,  // the run has reached its end
  };

  rpc::RoleId id;
  std::vector<std::string> command;
  // Put behind the command of every incarnation but the first.
  std::vector<std::string> resume_arguments;
  // Put behind the command until the role has run once since the fleet started:
  // what a run that is resumed begins with, and a role that is started again
  // does not go back to.
  std::vector<std::string> first_arguments;
  // "NAME=value"; those of HeartbeatSenderOptions are added.
  std::vector<std::string> environment;
  CpuSet cpus;  // empty: all
  // By how much it gives way to others on its processors.
  int niceness_levels = 0;
  // A role starts once all of smaller start_stage run, and drains once all of
  // smaller stop_stage have ended.
  int start_stage = 0;
  int stop_stage = 0;
  OnSuccess on_success = OnSuccess::kRestart;
  // Whether SIGTERM has it drain; else the order in the answers to its
  // heartbeats does alone.
  bool takes_sigterm = true;
  // The run goes on without it if it cannot be kept alive.
  bool is_optional = false;
  RestartPolicy restart;
};

}  // namespace replicant::fleet
