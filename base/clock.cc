#include "base/clock.h"

#include <algorithm>

#include "base/check.h"

namespace replicant {
namespace {

class RealClock : public Clock {
 public:
  TimePoint Now() const override { return std::chrono::steady_clock::now(); }

  int64_t UnixNanos() const override {
    return std::chrono::duration_cast<Duration>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }

  bool WaitUntil(Mutex& mutex, CondVar& condition, TimePoint deadline,
                 const std::function<bool()>& predicate)
      REQUIRES(mutex) override {
    while (!predicate()) {
      if (Now() >= deadline) return predicate();
      condition.WaitUntil(mutex, deadline);
    }
    return true;
  }
};

}  // namespace

Clock& Clock::Real() {
  static RealClock clock;
  return clock;
}

Clock::TimePoint FakeClock::Now() const {
  MutexLock lock(mutex_);
  return now_;
}

int64_t FakeClock::UnixNanos() const {
  MutexLock lock(mutex_);
  return now_.time_since_epoch().count();
}

bool FakeClock::WaitUntil(Mutex& mutex, CondVar& condition, TimePoint deadline,
                          const std::function<bool()>& predicate) {
  // a thread counts as a waiter only after it has found that it must wait
  bool holds = predicate();
  if (holds) return true;
  {
    MutexLock lock(mutex_);
    waiters_.push_back({&mutex, &condition});
    waiters_changed_.NotifyAll();
  }

  // Advance() takes `mutex` before it notifies, so the clock cannot pass the
  // deadline unseen between Now() and Wait()
  while (!holds && Now() < deadline) {
    condition.Wait(mutex);
    holds = predicate();
  }

  MutexLock lock(mutex_);
  const auto self =
      std::find_if(waiters_.begin(), waiters_.end(), [&](const Waiter& w) {
        return w.mutex == &mutex && w.condition == &condition;
      });
  waiters_.erase(self);
  return holds;
}

void FakeClock::Advance(Duration step) {
  REPLICANT_CHECK(step.count() >= 0, "time cannot go back by {} ns",
                  -step.count());
  std::vector<Waiter> waiters;
  {
    MutexLock lock(mutex_);
    now_ += step;
    waiters = waiters_;
  }
  for (const Waiter& waiter : waiters) {
    MutexLock lock(*waiter.mutex);
    waiter.condition->NotifyAll();
  }
}

void FakeClock::AwaitWaiters(int count) {
  MutexLock lock(mutex_);
  while (static_cast<int>(waiters_.size()) < count) {
    waiters_changed_.Wait(mutex_);
  }
}

}  // namespace replicant
