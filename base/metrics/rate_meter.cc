#include "base/metrics/rate_meter.h"

#include <chrono>
#include <limits>

#include "base/check.h"

namespace replicant::metrics {

RateMeter::RateMeter(Clock::Duration window) : window_(window) {
  REPLICANT_CHECK(window.count() > 0, "window of {} ns", window.count());
}

void RateMeter::Add(Clock::TimePoint now, double total) {
  if (!samples_.empty()) {
    REPLICANT_CHECK(now >= samples_.back().time, "time went back");
    if (total < samples_.back().total) samples_.clear();
  }
  samples_.push_back({now, total});
  // the second sample is old enough to be the first
  while (samples_.size() > 2 && now - samples_[1].time >= window_) {
    samples_.pop_front();
  }
}

double RateMeter::rate() const {
  if (samples_.empty() || samples_.front().time == samples_.back().time) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double span_s = ToSeconds(samples_.back().time - samples_.front().time);
  return (samples_.back().total - samples_.front().total) / span_s;
}

}  // namespace replicant::metrics
