#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/mutex.h"

namespace replicant {

// A source of time. Everything that waits or measures takes a Clock, so that a
// test can run it on a FakeClock without sleeping.
//
// Thread-safety: all methods may be called from any thread.
class Clock {
 public:
  using Duration = std::chrono::nanoseconds;
  // Time since an arbitrary start; never goes back.
  using TimePoint =
      std::chrono::time_point<std::chrono::steady_clock, Duration>;

  virtual ~Clock() = default;

  virtual TimePoint Now() const = 0;

  // Wall-clock time, for records that people read: nanoseconds since 1970 UTC.
  virtual int64_t UnixNanos() const = 0;

  // Waits on `condition` until `predicate()` holds or `deadline` is reached,
  // and returns what `predicate()` says then. `mutex` is held by the caller,
  // released while waiting and held again on return. As with
  // std::condition_variable::wait_until, a thread that changes the predicate's
  // inputs must notify `condition`.
  virtual bool WaitUntil(Mutex& mutex, CondVar& condition, TimePoint deadline,
                         const std::function<bool()>& predicate)
      REQUIRES(mutex) = 0;

  // The steady clock of the operating system; lives for the whole process.
  static Clock& Real();
};

// Seconds as the configuration gives them, and back. FromSeconds() rounds
// towards zero.
inline Clock::Duration FromSeconds(double seconds) {
  return std::chrono::duration_cast<Clock::Duration>(
      std::chrono::duration<double>(seconds));
}
inline double ToSeconds(Clock::Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

// A clock that stands still until Advance() moves it.
class FakeClock : public Clock {
 public:
  TimePoint Now() const override EXCLUDES(mutex_);
  int64_t UnixNanos() const override EXCLUDES(mutex_);
  bool WaitUntil(Mutex& mutex, CondVar& condition, TimePoint deadline,
                 const std::function<bool()>& predicate)
      REQUIRES(mutex) override;

  // Moves the clock on by `step` >= 0 and wakes every waiter whose deadline is
  // reached. The caller must not hold a mutex that a waiter waits with.
  void Advance(Duration step) EXCLUDES(mutex_);

  // Blocks (in real time) until `count` threads are inside WaitUntil, so that
  // a test advances only once its threads wait.
  void AwaitWaiters(int count) EXCLUDES(mutex_);

 private:
  struct Waiter {
    Mutex* mutex;
    CondVar* condition;
  };

  mutable Mutex mutex_;
  CondVar waiters_changed_;
  TimePoint now_ GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ GUARDED_BY(mutex_);
};

}  // namespace replicant
