#include "base/metrics/curves.h"

namespace replicant::metrics {

Curves::Curves(const EventWriterOptions& options, Clock& clock)
    : options_(options), clock_(clock), by_updates_(options, clock) {}

EventWriter* Curves::ByFrames(const CurvePoint& at) {
  if (at.frames == 0) return nullptr;
  const MutexLock lock(mutex_);
  if (!by_frames_) {
    EventWriterOptions options = options_;
    options.folder /= "by_frames";
    by_frames_.emplace(options, clock_);
  }
  return &*by_frames_;
}

void Curves::AddScalar(std::string_view tag, double value,
                       const CurvePoint& at) {
  by_updates_.AddScalar(tag, value, at.step);
  if (EventWriter* writer = ByFrames(at)) {
    writer->AddScalar(tag, value, at.frames);
  }
}

void Curves::AddHistogram(std::string_view tag, std::span<const float> values,
                          const CurvePoint& at) {
  by_updates_.AddHistogram(tag, values, at.step);
  if (EventWriter* writer = ByFrames(at)) {
    writer->AddHistogram(tag, values, at.frames);
  }
}

int64_t Curves::num_dropped() const {
  const MutexLock lock(mutex_);
  return by_updates_.num_dropped() +
         (by_frames_ ? by_frames_->num_dropped() : 0);
}

void Curves::Flush() {
  by_updates_.Flush();
  const MutexLock lock(mutex_);
  if (by_frames_) by_frames_->Flush();
}

}  // namespace replicant::metrics
