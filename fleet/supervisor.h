#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/rpc/heartbeat_monitor.h"
#include "fleet/backend.h"
#include "fleet/fleet_config.h"
#include "fleet/role.h"
#include "fleet/run_folder.h"

namespace replicant::fleet {

// Where a role stands, as its supervisor sees it.
enum class RolePhase {
  kPending,     // not started yet
  kStarting,    // no heartbeat has said that it runs
  kReady,       // runs
  kKilled,      // was killed, and is about to end
  kBackingOff,  // failed, and will be started again
  kEnded,
};

// How a run ended.
struct RunResult {
  RunStatus status = RunStatus::kRunning;  // that: it has not
  // One line; of a failure, followed by the last lines of the role's log.
  std::string message;
  // What went wrong while the roles drained, one line each.
  std::vector<std::string> problems;

  // Whether the program may end with success.
  bool ok() const { return status != RunStatus::kFailed && problems.empty(); }
};

// Starts the roles of a run in order, watches them, starts those that fail
// again and stops all of them in order.
//
//   Supervisor supervisor(options, specs, &folder, &backend, &monitor, &clock);
//   while (!supervisor.IsFinished()) {
//     supervisor.Step();
//     ... wait until a process ends, or 50 ms
//   }
//
// A role runs once one of its heartbeats says kRunning or kWaiting. It has
// failed if it ends (unless OnSuccess says otherwise), does not run within
// start_timeout_s, or is silent for heartbeat_timeout_s; then it is killed if
// it still lives, and started again when its RestartPolicy allows. A role
// without budget ends the run, and the others drain; an optional one is given
// up with a warning.
//
// A role that completes the run may say why in its last heartbeat, as the
// reason of kDraining.
//
// Time during which Step() was not called (the machine slept, the supervisor
// was stopped in a debugger) does not count as silence.
//
// Thread-safety: one thread; with LocalBackend one that lives as long as the
// roles should.
class Supervisor {
 public:
  struct Options {
    FleetConfig config;
    // Of the server that the monitor is attached to.
    std::string heartbeat_endpoint;
    uint64_t seed = 0;  // of the pauses' jitter
  };
  struct RoleView {
    rpc::RoleId id;
    RolePhase phase = RolePhase::kPending;
    uint32_t incarnation = 0;  // 0: not started yet
    int64_t num_failures = 0;  // of this start of the run
    // kBackingOff: seconds until it is started, and why it has to be
    double backoff_s = 0.0;
    std::string last_failure;
  };

  // Throws InvalidArgument for no role, a role given twice or a role without a
  // command. The pointers must outlive the supervisor.
  Supervisor(Options options, std::vector<RoleSpec> specs, RunFolder* folder,
             Backend* backend, rpc::HeartbeatMonitor* monitor, Clock* clock);

  // One look at everything; does not wait.
  void Step();

  // Drains everything in order of the stop stages. The first call counts.
  void RequestStop(const std::string& why);
  // Kills everything.
  void StopNow(const std::string& why);

  bool IsStopping() const { return result_.has_value(); }
  bool IsFinished() const;
  // kRunning until IsFinished().
  RunResult result() const;

  std::vector<RoleView> Roles() const;
  // Of the processes that run, for poll().
  std::vector<int> ExitFds() const;

 private:
  struct Member {
    RoleSpec spec;
    RestartTracker tracker;
    RolePhase phase = RolePhase::kPending;
    std::unique_ptr<RoleProcess> process;
    uint32_t incarnation = 0;
    bool has_run = false;
    int64_t num_failures = 0;
    Clock::TimePoint started_at;
    Clock::TimePoint start_at;  // kBackingOff
    std::string last_failure;
    // kKilled: why the supervisor did that
    std::string killed_because;
    // set once it was asked to drain
    std::optional<Clock::TimePoint> drain_deadline;
  };

  void CheckExit(Member& member);
  void CheckHeartbeat(Member& member);
  void StartDue();
  void Start(Member& member);
  void AdvanceStop();
  // Signals a process that does not do what it should; CheckExit() finds its
  // end.
  void Kill(Member& member, std::string why);
  void HandleFailure(Member& member, const std::string& why);
  void BeginStop(RunStatus status, std::string message);
  std::string LogOf(const Member& member) const;
  // Whether every role of a smaller start stage runs or has ended.
  bool MayStart(const Member& member) const;

  const Options options_;
  RunFolder& folder_;
  Backend& backend_;
  rpc::HeartbeatMonitor& monitor_;
  Clock& clock_;
  std::vector<Member> members_;
  Clock::TimePoint now_;
  // silence is counted from here at the earliest
  Clock::TimePoint watching_since_;
  std::optional<RunResult> result_;
  bool is_stopping_now_ = false;
};

}  // namespace replicant::fleet
