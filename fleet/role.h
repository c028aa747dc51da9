#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread.h"
#include "fleet/protocol/heartbeat.h"
#include "fleet/restart_policy.h"

namespace replicant::fleet {

// Exit code of a role whose input data are incorrect: EX_DATAERR of sysexits.h.
// A start that meets the same data fails again.
inline constexpr int kExitData = 65;

// Position of a role in the flow of training data. FleetStatus uses it to find
// the side that limits the run.
enum class DataFlow {
  kNone,
  kProduces,  // actors
  kBuffers,   // replay: its rate limiter gives the reason for a wait
  kConsumes,  // learner
};

// One process of a run, which the supervisor keeps alive.
struct RoleSpec {
  enum class OnSuccess {
    kRestart,       // counts as a failure
    kDone,          // the role is done; the run continues
    kCompletesRun,  // the run is complete
  };

  RoleId id;
  std::vector<std::string> command;
  // Appended to the command of every incarnation, also on another host, whose
  // agent makes the command itself.
  std::vector<std::string> arguments;
  // Appended to the command of every incarnation but the first.
  std::vector<std::string> resume_arguments;
  // Appended to the command until the role has run once since the fleet
  // started. A resumed run uses them to restore its state; a role restarted
  // later must not go back to that state.
  std::vector<std::string> first_arguments;
  // "NAME=value". The supervisor adds the variables of HeartbeatSenderOptions.
  std::vector<std::string> environment;
  CpuSet cpus;  // empty: all
  // Added to the niceness of the process (base/priority.h).
  int niceness_levels = 0;
  // A role starts once all roles with a smaller start_stage run, and drains
  // once all roles with a smaller stop_stage have ended.
  int start_stage = 0;
  int stop_stage = 0;
  OnSuccess on_success = OnSuccess::kRestart;
  // Whether the role also drains on SIGTERM, not only on the order in the
  // answers to its heartbeats.
  bool takes_sigterm = true;
  // Whether the run continues when its restart budget is spent.
  bool is_optional = false;
  // Whether the role runs on a host that has joined for it (fleet/host_pool.h).
  // The role waits until there is such a host.
  bool is_remote = false;
  // Whether the run may start and continue while the role waits for a host.
  bool is_elastic = false;
  // Whether the run continues without the role when its restart budget is
  // spent. The role starts again once its failures have left the window.
  bool may_be_left_out = false;
  // Set for members of the run's elastic group. The members start together and
  // run every step together; the loss of one ends the others (kExitPeerLost),
  // and all start again. The first member leads. A member with a spent restart
  // budget is left out while at least `min_group_size` members remain. Returns
  // the arguments to append to the command of member `rank` of `size`.
  std::function<std::vector<std::string>(int rank, int size)> group_arguments;
  int min_group_size = 1;
  DataFlow data_flow = DataFlow::kNone;
  // Counter of its heartbeats that a role raises whenever it has done a whole
  // piece of work, such as an episode; empty: none. A run does not count as
  // complete if every role with one has failed twice and none ever raised it.
  std::string work_counter;
  RestartPolicy restart;
};

}  // namespace replicant::fleet
