#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "base/config/reader.h"
#include "base/rng.h"

namespace replicant::fleet {

// When and how often a failed role is restarted: an element of section
// `fleet.restart`.
//
// The k-th failure within the last window_s seconds is followed by a pause of
//
//   min(initial_backoff_s * 2^(k-1), max_backoff_s) * u,
//   u uniform in [1 - jitter, 1 + jitter)
//
// The jitter keeps roles that failed together from restarting together. More
// than `budget` failures within the window end the run.
struct RestartPolicy {
  double initial_backoff_s = 0.5;
  double max_backoff_s = 30.0;
  double jitter = 0.2;
  int64_t budget = 10;  // restarts
  double window_s = 600.0;

  // Reads a policy whose absent keys keep the values of `defaults`.
  static RestartPolicy Read(config::Reader& reader, RestartPolicy defaults);
};

// Applies a policy to one role.
//
// Thread-safety: one thread at a time.
class RestartTracker {
 public:
  RestartTracker(const RestartPolicy& policy, RandomStream random)
      : policy_(policy), random_(random) {}

  // Records a failure at `now`, which must not decrease. Returns the pause
  // before the restart, or std::nullopt if the budget is spent.
  std::optional<Clock::Duration> Failed(Clock::TimePoint now);

  // When a role with a spent budget may start again, because enough of its
  // failures have left the window.
  Clock::TimePoint AllowedAgainAt() const;

  // Failures within the window that ends at the last failure.
  int64_t num_recent() const { return static_cast<int64_t>(recent_.size()); }
  const RestartPolicy& policy() const { return policy_; }

 private:
  RestartPolicy policy_;
  RandomStream random_;
  std::deque<Clock::TimePoint> recent_;
};

}  // namespace replicant::fleet
