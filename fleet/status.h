#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/metrics/progress.h"
#include "core/metrics/rate_meter.h"
#include "core/rpc/heartbeat_monitor.h"
#include "fleet/supervisor.h"

namespace replicant::fleet {

// One entry of a run's progress line: a number from a role's heartbeats.
struct ProgressField {
  enum class Kind { kCount, kRate, kValue };

  Kind kind = Kind::kValue;
  std::string label;
  std::string role;
  std::string number;
  double goal = 0.0;  // kCount
};

// Combines the heartbeats of a fleet.
//
// A counter is summed over all processes of the role, ended ones included, and
// so never shrinks. A gauge is taken from the newest heartbeat of each process.
//
// Thread-safety: all methods may be called from any thread.
class FleetStatus {
 public:
  // `window` is the time over which waiting shares are measured.
  explicit FleetStatus(Clock::Duration window = std::chrono::seconds(10))
      : window_(window) {}

  // Takes in the state at `now`, which must not go back.
  void Update(const std::vector<Supervisor::RoleView>& roles,
              const std::vector<rpc::HeartbeatMonitor::Entry>& beats,
              bool is_stopping, Clock::TimePoint now) EXCLUDES(mutex_);

  // Sum and mean over all processes of `role`; NaN if none has the number.
  double Sum(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);
  double Mean(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);
  // The value of the process that reported last; NaN if there is none.
  double Last(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);

  // A short phrase for the present bottleneck of the run:
  //
  //   "stopping"
  //   "learner-0 starts", "actor-1 restarts in 4 s (exit code 3)"
  //   "actors: learner waits 60% (replay holds 200 of 1000 items)"
  //   "learner: actors wait 80% (samples per insert)"
  //   "none"           when both sides wait less than 5 % of the time
  //
  // The roles that produce and consume data wait for each other (DataFlow). If
  // the waiting side gives no reason, the reason of the role that buffers the
  // data is shown: its rate limiter knows what it waits for.
  std::string Limit() const EXCLUDES(mutex_);

  // Adds `fields` and the limit to `line`, which this object must outlive.
  void AddTo(metrics::ProgressLine& line,
             const std::vector<ProgressField>& fields) const;

 private:
  struct Member {
    uint32_t incarnation = 0;
    rpc::Heartbeat beat;
    Clock::TimePoint beat_time;
    std::map<std::string, double> ended;  // counters of earlier incarnations
    metrics::RateMeter waiting;
    std::string reason;  // of the last wait
  };

  void TakeIn(const rpc::HeartbeatMonitor::Entry& entry, Clock::TimePoint now)
      REQUIRES(mutex_);
  void NoteDataFlow(const std::vector<Supervisor::RoleView>& roles)
      REQUIRES(mutex_);
  std::string LimitOfPhases(
      const std::vector<Supervisor::RoleView>& roles) const;
  // Share of the time that the processes of `role` wait, 0 to 1.
  double WaitingShare(std::string_view role) const REQUIRES(mutex_);
  std::string Reason(std::string_view role) const REQUIRES(mutex_);

  const Clock::Duration window_;
  mutable Mutex mutex_;
  std::map<rpc::RoleId, Member> members_ GUARDED_BY(mutex_);
  std::string limit_of_phases_ GUARDED_BY(mutex_);
  // names of the roles with each DataFlow; empty if there is none
  std::string producer_ GUARDED_BY(mutex_);
  std::string buffer_ GUARDED_BY(mutex_);
  std::string consumer_ GUARDED_BY(mutex_);
};

}  // namespace replicant::fleet
