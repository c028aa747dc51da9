#include "fleet/restart_policy.h"

#include <gtest/gtest.h>

#include <chrono>

namespace replicant::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RestartTracker Tracker(const RestartPolicy& policy, uint64_t seed = 1) {
  return {policy, RandomStream(seed, "test")};
}

TEST(RestartTrackerTest, ThePauseDoublesUpToItsMaximum) {
  RestartTracker tracker =
      Tracker({.initial_backoff_s = 0.5, .max_backoff_s = 3.0, .jitter = 0.0});
  Clock::TimePoint now;
  for (const int expected_ms : {500, 1000, 2000, 3000, 3000}) {
    EXPECT_EQ(tracker.Failed(now), milliseconds(expected_ms));
    now += seconds(1);
  }
  EXPECT_EQ(tracker.num_recent(), 5);
}

TEST(RestartTrackerTest, OneMoreFailureThanTheBudgetIsTooMany) {
  RestartTracker tracker = Tracker({.jitter = 0.0, .budget = 2});
  const Clock::TimePoint now;
  EXPECT_TRUE(tracker.Failed(now).has_value());
  EXPECT_TRUE(tracker.Failed(now).has_value());
  EXPECT_EQ(tracker.Failed(now), std::nullopt);
  EXPECT_EQ(Tracker({.budget = 0}).Failed(now), std::nullopt);
}

// A role that fails now and then is started again for ever, at once.
TEST(RestartTrackerTest, FailuresBeforeTheWindowAreForgotten) {
  RestartTracker tracker = Tracker(
      {.initial_backoff_s = 0.5, .jitter = 0.0, .budget = 1, .window_s = 10.0});
  Clock::TimePoint now;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(tracker.Failed(now), milliseconds(500));
    now += seconds(10);
  }
  now -= seconds(1);
  EXPECT_EQ(tracker.Failed(now), std::nullopt);
}

TEST(RestartTrackerTest, JitterSpreadsThePausesWithinItsBounds) {
  double least = 1e9, most = 0.0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const auto pause = Tracker({.initial_backoff_s = 1.0, .jitter = 0.2}, seed)
                           .Failed(Clock::TimePoint());
    const double pause_s = ToSeconds(*pause);
    least = std::min(least, pause_s);
    most = std::max(most, pause_s);
  }
  EXPECT_GE(least, 0.8);
  EXPECT_LT(least, 0.82);
  EXPECT_LT(most, 1.2);
  EXPECT_GT(most, 1.18);
}

// 2^k of hundreds of failures must not become infinite or negative.
TEST(RestartTrackerTest, ManyFailuresKeepTheLongestPause) {
  RestartTracker tracker =
      Tracker({.max_backoff_s = 30.0, .jitter = 0.0, .budget = 1'000'000});
  for (int i = 0; i < 3000; ++i) {
    ASSERT_TRUE(tracker.Failed(Clock::TimePoint()).has_value());
  }
  EXPECT_EQ(tracker.Failed(Clock::TimePoint()), seconds(30));
}

}  // namespace
}  // namespace replicant::fleet
