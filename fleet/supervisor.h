#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fleet/backend.h"
#include "fleet/fleet_config.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "fleet/role.h"
#include "fleet/run_folder.h"

namespace replicant::fleet {

// State of a role in its supervisor.
enum class RolePhase {
  kPending,     // not started yet
  kStarting,    // started; no heartbeat says yet that it runs
  kReady,       // runs
  kKilled,      // got SIGKILL and has not ended yet
  kBackingOff,  // failed; a restart follows
  kLeftOut,     // its group continues without it until it may restart
  kEnded,
};

// How a run ended.
struct RunResult {
  RunStatus status = RunStatus::kRunning;  // kRunning: it has not ended
  // One line. After a failure the last lines of the role's log follow.
  std::string message;
  // Problems while the roles drained, one line each.
  std::vector<std::string> problems;
  // A role could not write all of its results (kExitUnsaved); the message says
  // which.
  bool is_unsaved = false;
  // A role refused the configuration (kExitConfig), or the program of its
  // command cannot be executed, which failed the run.
  bool is_mistake = false;

  // Whether the program may end with success.
  bool ok() const {
    return status != RunStatus::kFailed && problems.empty() && !is_unsaved;
  }
};

// Starts the roles of a run in order, watches them, restarts those that fail
// and stops all of them in order.
//
//   Supervisor supervisor(options, specs, &folder, &backend, &monitor, &clock);
//   while (!supervisor.IsFinished()) {
//     supervisor.Step();
//     ... wait until a process ends, or 50 ms
//   }
//
// A role runs once a heartbeat says kRunning or kWaiting. It fails if it ends
// (unless OnSuccess says otherwise), sends no heartbeat for
// heartbeat_timeout_s, or does not run within start_timeout_s of its start or
// of the last change of a number in its heartbeats (a replay counts restored
// items). A failed role is killed if it still lives, and restarted as its
// RestartPolicy allows. When a role's budget is spent, the run fails and the
// other roles drain; if the role is optional, the run continues with a warning.
// A role that ends with kExitConfig or kExitDevice before it has run is not
// restarted: a restart cannot repair a configuration or a device. Nor is one
// that ends with kExitData twice in a row: a restart meets the same data.
//
// A role that completes the run may give the reason in its last heartbeat, as
// the reason of kDraining. It does so with kExitUnsaved, too: another attempt
// would only repeat work that is done. The run fails all the same if no role
// with a RoleSpec::work_counter ever worked: a learner may reach a limit on
// what actors left that fail in every episode.
//
// A remote role waits until the backend has room for it. Losing its host is not
// a failure: the role waits for another host. Nor is silence of the role while
// its host is silent.
//
// An elastic group (RoleSpec::group_arguments) starts as a whole, and again as
// a whole after a member has failed and all others have ended. Only the failed
// member's failure counts against its budget. A member with a spent budget is
// left out. Once its failures have left the window, the leader is asked to save
// its state and end, and the group starts with all members that are ready. A
// group with remote members waits until there is room for all of them.
//
// The number of processes of a role may change while the run goes on
// (SetCount()). One that is not wanted any more drains, which is no failure.
//
// A pause between two calls of Step() (the machine slept, a debugger stopped
// the supervisor) does not count as silence of the roles.
//
// Thread-safety: one thread; with LocalBackend the roles die with that
// thread.
class Supervisor {
 public:
  struct Options {
    FleetConfig config;
    // Endpoint of the server that the monitor is attached to.
    std::string heartbeat_endpoint;
    // File of the key pair that its clients need; empty: none.
    std::string key_file = {};
    uint64_t seed = 0;  // for the jitter of the backoff
  };
  struct RoleView {
    RoleId id;
    RolePhase phase = RolePhase::kPending;
    uint32_t incarnation = 0;  // 0: not started yet
    int64_t num_failures = 0;  // since this start of the run
    // kBackingOff: seconds until the restart, and its cause
    double backoff_s = 0.0;
    std::string last_failure;
    DataFlow data_flow = DataFlow::kNone;
    std::string host;          // where it runs; empty: this one
    bool is_remote = false;    // RoleSpec::is_remote
    bool is_wanted = true;     // false: SetCount() has taken its place away
    bool has_no_room = false;  // kPending: no host can take it
  };

  // Throws InvalidArgument for an empty list of roles, a role given twice or a
  // role without a command. The pointers must outlive the supervisor.
  Supervisor(Options options, std::vector<RoleSpec> specs, RunFolder* folder,
             Backend* backend, HeartbeatMonitor* monitor, Clock* clock);

  // Checks every process once and acts on what it finds; does not wait.
  void Step();

  // From now on the run has `count` processes of the role, those with the
  // indices below it. Others drain and are killed after stop_timeout_s, as at
  // the end of a run. `make` describes each of them; one that there has been
  // before takes over RoleSpec::arguments alone. No effect once the run ends.
  // Throws InvalidArgument, with no change, for members of an elastic group or
  // a description that the constructor refuses.
  void SetCount(const std::string& role, uint32_t count,
                const std::function<RoleSpec(uint32_t index)>& make,
                const std::string& why);
  // Drains all roles in the order of their stop stages. Only the first call has
  // an effect.
  void RequestStop(const std::string& why);
  // Kills all roles at once.
  void StopNow(const std::string& why);

  // Whether every role has run, except optional and elastic ones.
  bool HasStarted() const;
  // Whether every role meant for another host runs on one.
  bool HaveAllAPlace() const;
  bool IsStopping() const { return result_.has_value(); }
  bool IsFinished() const;
  // kRunning until IsFinished().
  RunResult result() const;

  std::vector<RoleView> Roles() const;
  // Descriptors of the running processes, for poll().
  std::vector<int> ExitFds() const;

 private:
  struct Member {
    RoleSpec spec;
    RestartTracker tracker;
    RolePhase phase = RolePhase::kPending;
    std::unique_ptr<RoleProcess> process;
    uint32_t incarnation = 0;
    bool has_run = false;
    // whether its work counter was ever above 0
    bool has_worked = false;
    int64_t num_failures = 0;
    ExitStatus last_exit;  // of its last failure that was no kill
    // The time of its start, or of the last progress in its start; and that
    // progress.
    Clock::TimePoint progressed_at;
    std::map<std::string, BeatNumber> progress;
    Clock::TimePoint start_at;  // kBackingOff
    // its silence counts from here at the earliest, because its host was silent
    Clock::TimePoint heard_of_at;
    std::string last_failure;
    uint32_t failed_incarnation = 0;  // the last one
    // kKilled: the reason
    std::string killed_because;
    // kKilled: because others of its group have ended
    bool is_killed_with_group = false;
    // appended to the command, by its rank in its group
    std::vector<std::string> group_arguments;
    // of its newest process
    std::optional<HeartbeatMonitor::Entry> latest;
    // set when the role is asked to drain
    std::optional<Clock::TimePoint> drain_deadline;
    bool is_wanted = true;  // SetCount()
    bool is_added = false;  // by SetCount()
  };

  // State of the elastic group; all false while it runs undisturbed.
  struct Group {
    std::vector<Member*> members;  // the first one leads; empty: no group
    bool is_ending = false;        // a member has ended, and the others follow
    bool has_failed = false;       // a member has failed by itself
    bool is_growing = false;       // the leader was asked to end
    // when members that still run are killed
    std::optional<Clock::TimePoint> end_by;
  };

  void CheckExit(Member& member);
  // Ends the run because the role has succeeded.
  void Complete(const Member& member, const ExitStatus& status);
  // Why a run that a role completes has failed; empty if it has not.
  std::string WhyNothingWorked() const;
  // What the role gave as the reason of its end; empty for none.
  std::string ReasonOf(const Member& member) const;
  // --- supervisor_group.cc ---
  void FindGroup();
  void EndMember(Member& member, const ExitStatus& status, bool is_lost);
  // Whether the run or its group continues without the member; records that it
  // does.
  bool LeaveOut(Member& member, const std::string& why);
  void WaitLeftOut(Member& member, const std::string& why,
                   const std::string& who_goes_on);
  void StepGroup();
  void StartGroup();
  void GrowGroup();
  // The members except those that are left out.
  std::vector<Member*> RestOfGroup() const;
  // Takes the heartbeats in that have arrived since the last call.
  void TakeHeartbeats();
  void CheckHeartbeat(Member& member);
  void StartDue();
  void Start(Member& member);
  // Throws InvalidArgument for a role that cannot be run.
  static void CheckSpec(const RoleSpec& spec);
  void AddMember(RoleSpec spec);
  // --- supervisor_drain.cc ---
  void AdvanceStop();
  // Asks the member to end; the end of the run, and SetCount().
  void OrderDrain(Member& member, const std::string& why);
  // Kills a member that was asked to end too long ago.
  void KillLateMember(Member& member);
  // ---
  // Sends SIGKILL; CheckExit() notices the end of the process.
  void Kill(Member& member, std::string why);
  // Whether the last process refused the configuration, and none has run.
  static bool IsRefused(const Member& member) {
    return member.last_exit.code == kExitConfig && !member.has_run;
  }
  // Why a restart after this end would end in the same way; "" if it may not.
  // Records the end.
  static std::string WhyNoRestart(Member& member, const ExitStatus& status);
  // `last_line` is the last line of the process's log. A role with a reason
  // not to restart it is not started again.
  void HandleFailure(Member& member, const std::string& why,
                     const std::string& last_line = "",
                     const std::string& why_no_restart = "");
  void BeginStop(RunStatus status, std::string message);
  std::string LogOf(const Member& member) const;
  // Creates the file for the output of a process; "" if that fails: the process
  // then shares the fleet's output.
  std::filesystem::path MakeLog(const Member& member) const;
  // The smallest start stage with a role that others wait for: it does not run,
  // has not ended and is not left out. Roles up to this stage may start.
  // O(roles).
  int OpenStage() const;

  const Options options_;
  RunFolder& folder_;
  Backend& backend_;
  HeartbeatMonitor& monitor_;
  Clock& clock_;
  std::deque<Member> members_;  // the group and by_id_ point to them
  std::map<RoleId, Member*> by_id_;
  uint64_t num_heard_ = 0;  // cursor of HeartbeatMonitor::NewSince()
  Group group_;
  Clock::TimePoint now_;
  // silence of a role counts from here at the earliest
  Clock::TimePoint watching_since_;
  std::optional<RunResult> result_;
  bool is_stopping_now_ = false;
};

}  // namespace replicant::fleet
