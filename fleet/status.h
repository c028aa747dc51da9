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

// One entry of a run's progress line: a number of the heartbeats of a role.
struct ProgressField {
  enum class Kind { kCount, kRate, kValue };

  Kind kind = Kind::kValue;
  std::string label;
  std::string role;
  std::string number;
  double goal = 0.0;  // kCount
};

// What the heartbeats of a fleet say, taken together.
//
// A role's counter is summed over its processes, those that have ended
// included; so it never shrinks. A gauge is taken from the newest heartbeat of
// each.
//
// Thread-safety: all methods may be called from any thread.
class FleetStatus {
 public:
  // `window` is what the shares of time are measured over.
  explicit FleetStatus(Clock::Duration window = std::chrono::seconds(10))
      : window_(window) {}

  // Takes in what is known at `now`, which does not go back.
  void Update(const std::vector<Supervisor::RoleView>& roles,
              const std::vector<rpc::HeartbeatMonitor::Entry>& beats,
              bool is_stopping, Clock::TimePoint now) EXCLUDES(mutex_);

  // Over all processes of `role`; NaN if none has such a number.
  double Sum(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);
  double Mean(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);
  // Of the process that reported last; NaN if there is none.
  double Last(std::string_view role, std::string_view number) const
      EXCLUDES(mutex_);

  // What holds the run up now, in a short phrase:
  //
  //   "stopping"
  //   "learner-0 starts", "actor-1 restarts in 4 s (exit code 3)"
  //   "actors: learner waits 60% (replay holds 200 of 1000 items)"
  //   "learner: actors wait 80% (samples per insert)"
  //   "none"           when learner and actors wait less than 5 % of the time
  //
  // What waits is held up by the other side. Without a reason of its own that
  // of the replay is shown, which is where its rate limiter says what it waits
  // for.
  std::string Limit() const EXCLUDES(mutex_);

  // Adds `fields`, and the limit, to a line; it reads this object, which must
  // outlive it.
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
  std::string LimitOfPhases(
      const std::vector<Supervisor::RoleView>& roles) const;
  // Share of the time that the processes of `role` wait, 0 to 1.
  double WaitingShare(std::string_view role) const REQUIRES(mutex_);
  std::string Reason(std::string_view role) const REQUIRES(mutex_);

  const Clock::Duration window_;
  mutable Mutex mutex_;
  std::map<rpc::RoleId, Member> members_ GUARDED_BY(mutex_);
  std::string limit_of_phases_ GUARDED_BY(mutex_);
};

}  // namespace replicant::fleet
