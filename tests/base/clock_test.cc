#include "base/clock.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "base/thread.h"

namespace replicant {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(ClockTest, RealClockGoesOnAndEndsAWaitAtItsDeadline) {
  Clock& clock = Clock::Real();
  Mutex mutex;
  CondVar condition;
  const Clock::TimePoint start = clock.Now();
  MutexLock lock(mutex);
  EXPECT_FALSE(clock.WaitUntil(mutex, condition, start + milliseconds(2),
                               [] { return false; }));
  EXPECT_GE(clock.Now() - start, milliseconds(2));
  EXPECT_GT(clock.UnixNanos(), int64_t{1'600'000'000} * 1'000'000'000);
}

TEST(ClockTest, ConditionThatHoldsNeedsNoWait) {
  FakeClock clock;
  Mutex mutex;
  CondVar condition;
  MutexLock lock(mutex);
  EXPECT_TRUE(
      clock.WaitUntil(mutex, condition, clock.Now(), [] { return true; }));
}

// Would catch a clock that wakes too early, too late or never.
TEST(ClockTest, FakeClockWakesAWaiterExactlyAtItsDeadline) {
  FakeClock clock;
  Mutex mutex;
  CondVar condition;
  Clock::TimePoint woken_at;
  bool result = true;
  Thread waiter("waiter", [&](const Thread::StopToken&) {
    MutexLock lock(mutex);
    result = clock.WaitUntil(mutex, condition, clock.Now() + seconds(10),
                             [] { return false; });
    woken_at = clock.Now();
  });
  clock.AwaitWaiters(1);
  clock.Advance(seconds(9));
  clock.AwaitWaiters(1);
  clock.Advance(seconds(1));
  waiter.Join();
  EXPECT_FALSE(result);
  EXPECT_EQ(woken_at.time_since_epoch(), seconds(10));
}

TEST(ClockTest, NotificationEndsAWaitOnAFakeClockThatStandsStill) {
  FakeClock clock;
  Mutex mutex;
  CondVar condition;
  bool is_ready = false;
  bool result = false;
  Thread waiter("waiter", [&](const Thread::StopToken&) {
    MutexLock lock(mutex);
    result = clock.WaitUntil(mutex, condition, clock.Now() + seconds(1),
                             [&] { return is_ready; });
  });
  clock.AwaitWaiters(1);
  {
    MutexLock lock(mutex);
    is_ready = true;
    condition.NotifyAll();
  }
  waiter.Join();
  EXPECT_TRUE(result);
}

// A waiter acts at the time of its arrival until it rests.
TEST(ClockTest, AWaiterCountsOnceItHasFoundThatItMustWait) {
  FakeClock clock;
  Mutex mutex;
  CondVar condition;
  std::optional<Clock::TimePoint> first_look;
  Thread waiter("waiter", [&](const Thread::StopToken&) {
    MutexLock lock(mutex);
    EXPECT_FALSE(
        clock.WaitUntil(mutex, condition, clock.Now() + seconds(1), [&] {
          // long enough to be overtaken
          for (int i = 0; i < 20; ++i) std::this_thread::yield();
          if (!first_look) first_look = clock.Now();
          return false;
        }));
  });
  clock.AwaitWaiters(1);
  clock.Advance(seconds(1));
  waiter.Join();
  EXPECT_EQ(first_look, Clock::TimePoint());
}

TEST(ClockTest, SecondsConvertBothWays) {
  EXPECT_EQ(FromSeconds(1.5), milliseconds(1500));
  EXPECT_EQ(FromSeconds(1.9e-9), Clock::Duration(1)) << "towards zero";
  EXPECT_EQ(ToSeconds(milliseconds(250)), 0.25);
}

TEST(ClockDeathTest, TimeDoesNotGoBack) {
  FakeClock clock;
  EXPECT_DEATH(clock.Advance(seconds(-1)), "time cannot go back");
}

}  // namespace
}  // namespace replicant
