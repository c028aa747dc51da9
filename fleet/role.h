#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/thread.h"
#include "core/rpc/heartbeat.h"
#include "fleet/restart_policy.h"

namespace replicant::fleet {

// Place of a role in the flow of training data. FleetStatus derives from it
// which side of the flow holds up the other.
enum class DataFlow {
  kNone,
  kProduces,  // actors
  kBuffers,   // replay: its rate limiter gives the reason of a wait
  kConsumes,  // learner
};

// One process of a run, as the supervisor keeps it alive.
struct RoleSpec {
  enum class OnSuccess {
    kRestart,       // counts as a failure
    kDone,          // the role is done; the run continues
    kCompletesRun,  // the run is complete
  };

  rpc::RoleId id;
  std::vector<std::string> command;
  // Appended to the command of every incarnation but the first.
  std::vector<std::string> resume_arguments;
  // Appended to the command until the role has run once since the fleet
  // started. A resumed run restores its state with these; a restarted role does
  // not go back to it.
  std::vector<std::string> first_arguments;
  // "NAME=value". The supervisor adds the variables of HeartbeatSenderOptions.
  std::vector<std::string> environment;
  CpuSet cpus;  // empty: all
  // Added to the niceness of the process (core/base/priority.h).
  int niceness_levels = 0;
  // A role starts once all roles of a smaller start_stage run. It drains once
  // all roles of a smaller stop_stage have ended.
  int start_stage = 0;
  int stop_stage = 0;
  OnSuccess on_success = OnSuccess::kRestart;
  // Whether SIGTERM asks it to drain, beside the order in the answers to its
  // heartbeats.
  bool takes_sigterm = true;
  // Whether the run continues when its restart budget is spent.
  bool is_optional = false;
  // Whether it runs on a host that has joined for it (fleet/host_pool.h), and
  // waits while there is none.
  bool is_remote = false;
  // Whether the run starts and goes on while it waits for a host.
  bool is_elastic = false;
  // Whether the run goes on without it when its restart budget is spent, until
  // its failures have left the window and it starts again.
  bool may_be_left_out = false;
  // The role is a member of the run's elastic group if this is not null. The
  // members make every step together: they start together, one that is lost
  // ends the others (kExitPeerLost), and then all start again. The first one
  // leads. One whose restarts are used up is left out, and the group goes on
  // as long as `min_group_size` members are there. Returns what is appended to
  // the command of the member that has this rank of so many.
  std::function<std::vector<std::string>(int rank, int size)> group_arguments;
  int min_group_size = 1;
  DataFlow data_flow = DataFlow::kNone;
  RestartPolicy restart;
};

}  // namespace replicant::fleet
