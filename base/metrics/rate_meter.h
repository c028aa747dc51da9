#pragma once

#include <deque>

#include "base/clock.h"

namespace replicant::metrics {

// The growth rate of a total over a sliding window:
//
//   rate = (newest total - oldest total) / (newest time - oldest time)
//
// where the oldest sample is the newest one that is at least a window old, so
// that samples rarer than the window still give a rate. A total that shrinks
// (its process was restarted) begins a new window.
//
// Thread-safety: one thread at a time.
class RateMeter {
 public:
  // `window` > 0 (checked).
  explicit RateMeter(Clock::Duration window);

  // Adds a sample; `now` does not go back (checked).
  void Add(Clock::TimePoint now, double total);

  // Per second; NaN until two samples at different times are there.
  double rate() const;

 private:
  struct Sample {
    Clock::TimePoint time;
    double total;
  };

  Clock::Duration window_;
  std::deque<Sample> samples_;
};

}  // namespace replicant::metrics
