#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/metrics/rate_meter.h"
#include "base/mutex.h"
#include "fleet/progress.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

// A number from a role's heartbeats that ends the run when it reaches `goal`.
struct ProgressGoal {
  std::string role;
  std::string number;
  double goal = 0.0;
};

// One entry of a run's progress line: a number from a role's heartbeats, or a
// value of the whole run.
struct ProgressField {
  enum class Kind {
    kCount,     // the sum over the role, with its goal
    kRate,      // its growth per second
    kValue,     // the mean over the role
    kDuration,  // the mean over the role, seconds
    kTime,      // time passed, and time left until the first of `goals`
    kLimit,     // FleetStatus::Limit()
  };

  Kind kind = Kind::kValue;
  std::string label;
  std::string role;
  std::string number;
  double goal = 0.0;                // kCount
  std::vector<ProgressGoal> goals;  // kTime
};

// Combines the heartbeats of a fleet.
//
// A counter is summed over all processes of the role, ended ones included, and
// so never shrinks. A gauge comes from the newest heartbeat of each running
// process; once no process of the role runs, from all of them.
//
// Thread-safety: all methods may be called from any thread.
class FleetStatus {
 public:
  // `window` is the time over which waiting shares are measured.
  explicit FleetStatus(Clock::Duration window = std::chrono::seconds(10))
      : window_(window) {}

  // Updates the state to time `now`, which must not decrease. `beats` are the
  // new heartbeats. `disk_wait_s` is how long a disk has delayed the fleet
  // itself.
  void Update(const std::vector<Supervisor::RoleView>& roles,
              const std::vector<HeartbeatMonitor::Entry>& beats,
              bool is_stopping, Clock::TimePoint now, double disk_wait_s = 0.0)
      EXCLUDES(mutex_);

  // Sum, mean and maximum over the processes of `role`; NaN if none has the
  // number. The maximum is of newest values, without those of ended processes.
  double Sum(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);
  double Mean(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);
  double Max(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);
  // The value from the process that reported last; NaN if there is none.
  double Last(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);

  // A short phrase for the current bottleneck of the run:
  //
  //   "stopping"
  //   "learner-0 starts", "actor-1 restarts in 4 s (exit code 3)"
  //   "actors: learner waits 60% (replay holds 200 of 1000 items)"
  //   "learner: actors wait 80% (samples per insert)"
  //   "replay: learner and actors wait 90% (no room: ...)"
  //                    when at times both sides wait at once
  //   "none"           when both sides wait less than 5 % of the time
  //
  // The roles that produce and consume data wait for each other (DataFlow). If
  // the waiting side gives no reason, the reason of the role that buffers the
  // data is shown: its rate limiter knows what it waits for.
  std::string Limit() const EXCLUDES(mutex_);

  // A problem that no role has failed from; empty if there is none.
  //
  //   "learner-0 waits 35 s for the disk"   for 10 s and more
  //   "learner-0 has lost 120 records of its curves"   within the last minute
  //   "5 checkpoints failed, the last good one 12m10s ago"
  //
  // and more, from the numbers of the roles that run (ProblemsOf() in
  // status.cc has their names).
  std::string Problem() const EXCLUDES(mutex_);

  // Adds the problem, then `fields`, to `line`, which this object must outlive.
  void AddTo(ProgressLine& line,
             const std::vector<ProgressField>& fields) const;

 private:
  struct Member {
    uint32_t incarnation = 0;
    Heartbeat beat;
    Clock::TimePoint beat_time;
    std::map<std::string, double> ended;  // counters of earlier incarnations
    metrics::RateMeter waiting;
    std::string reason;    // of the last wait
    bool is_gone = false;  // ended, or waits to be started again
    // records of its curves that were lost: by this process, by all of them,
    // and the time of the last loss
    double num_dropped = 0.0;
    double num_dropped_by_all = 0.0;
    std::optional<Clock::TimePoint> dropped_at;
    std::vector<std::string> problems;  // of the last heartbeat
  };

  void TakeIn(const HeartbeatMonitor::Entry& entry, Clock::TimePoint now)
      REQUIRES(mutex_);
  void NoteDataFlow(const std::vector<Supervisor::RoleView>& roles)
      REQUIRES(mutex_);
  std::string LimitOfPhases(
      const std::vector<Supervisor::RoleView>& roles) const;
  // Limit() in several lengths, the longest first.
  std::vector<std::string> LimitForms() const EXCLUDES(mutex_);
  // The members of `role` whose gauges count.
  std::vector<const Member*> MembersOf(std::string_view role) const
      REQUIRES(mutex_);
  // Share of the time that the processes of `role` wait, 0 to 1.
  double WaitingShare(std::string_view role) const REQUIRES(mutex_);
  std::string Reason(std::string_view role) const REQUIRES(mutex_);

  const Clock::Duration window_;
  mutable Mutex mutex_;
  std::map<RoleId, Member> members_ GUARDED_BY(mutex_);
  std::string limit_of_phases_ GUARDED_BY(mutex_);
  std::vector<std::string> problems_ GUARDED_BY(mutex_);
  // names of the roles with each DataFlow; empty if there is none
  std::string producer_ GUARDED_BY(mutex_);
  std::string buffer_ GUARDED_BY(mutex_);
  std::string consumer_ GUARDED_BY(mutex_);
};

}  // namespace replicant::fleet
