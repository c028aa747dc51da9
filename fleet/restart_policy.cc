#include "fleet/restart_policy.h"

#include <algorithm>
#include <cmath>

namespace replicant::fleet {

RestartPolicy RestartPolicy::Read(config::Reader& reader,
                                  RestartPolicy defaults) {
  RestartPolicy c = defaults;
  reader.Field("initial_backoff_s", &c.initial_backoff_s, {0.0, 3600.0},
               "seconds before the first restart; doubled by every further "
               "failure within the window");
  reader.Field("max_backoff_s", &c.max_backoff_s, {0.0, 3600.0},
               "maximum seconds before a restart");
  reader.Field("jitter", &c.jitter, {0.0, 1.0},
               "each pause is multiplied by a random number in 1 +/- jitter");
  reader.Field("budget", &c.budget, {0, 1'000'000},
               "maximum restarts within the window; one more failure ends the "
               "run");
  reader.Field("window_s", &c.window_s, {1.0, 1e6},
               "length in seconds of the window in which failures count");
  if (c.max_backoff_s < c.initial_backoff_s) {
    reader.Error("max_backoff_s", "must be >= initial_backoff_s");
  }
  return c;
}

std::optional<Clock::Duration> RestartTracker::Failed(Clock::TimePoint now) {
  const auto window = FromSeconds(policy_.window_s);
  while (!recent_.empty() && now - recent_.front() >= window) {
    recent_.pop_front();
  }
  recent_.push_back(now);
  if (num_recent() > policy_.budget) return std::nullopt;
  // beyond 2^60 any pause is at its maximum
  const auto doublings = std::min<int64_t>(num_recent() - 1, 60);
  const double pause_s =
      std::min(
          std::ldexp(policy_.initial_backoff_s, static_cast<int>(doublings)),
          policy_.max_backoff_s) *
      random_.Uniform(1.0 - policy_.jitter, 1.0 + policy_.jitter);
  return FromSeconds(pause_s);
}

Clock::TimePoint RestartTracker::AllowedAgainAt() const {
  if (num_recent() <= policy_.budget) return {};
  const auto last_to_leave =
      static_cast<size_t>(num_recent() - policy_.budget - 1);
  return recent_[last_to_leave] + FromSeconds(policy_.window_s);
}

}  // namespace replicant::fleet
