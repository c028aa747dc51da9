#include "fleet/restart_policy.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace replicant::fleet {

RestartPolicy RestartPolicy::Read(config::Reader& reader,
                                  RestartPolicy defaults) {
  RestartPolicy c = defaults;
  reader.Field("initial_backoff_s", &c.initial_backoff_s, {0.0, 3600.0},
               "pause before the first restart, in seconds; it doubles with "
               "every failure within the window");
  reader.Field("max_backoff_s", &c.max_backoff_s, {0.0, 3600.0},
               "longest pause, in seconds");
  reader.Field("jitter", &c.jitter, {0.0, 1.0},
               "a pause is multiplied by a random number in 1 +/- this");
  reader.Field("budget", &c.budget, {0, 1'000'000},
               "restarts within the window; one more failure ends the run");
  reader.Field("window_s", &c.window_s, {1.0, 1e6},
               "seconds over which failures are counted");
  if (c.max_backoff_s < c.initial_backoff_s) {
    reader.Error("max_backoff_s", "must be >= initial_backoff_s");
  }
  return c;
}

std::optional<Clock::Duration> RestartTracker::Failed(Clock::TimePoint now) {
  const auto window = std::chrono::duration_cast<Clock::Duration>(
      std::chrono::duration<double>(policy_.window_s));
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
  return std::chrono::duration_cast<Clock::Duration>(
      std::chrono::duration<double>(pause_s));
}

}  // namespace replicant::fleet
