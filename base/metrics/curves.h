#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "base/clock.h"
#include "base/metrics/event_writer.h"

namespace replicant::metrics {

// A place on the curves of a run.
struct CurvePoint {
  int64_t step = 0;    // the learner's updates
  int64_t frames = 0;  // environment frames; 0 if there are none
};

// Writes each point of a run's curves twice: over updates into the folder, and
// over environment frames into the folder "by_frames" in it, which TensorBoard
// shows as another run. Several processes may write to one folder.
//
// Errors and thread-safety as for EventWriter.
class Curves {
 public:
  // The second folder is made with the first point that has frames.
  explicit Curves(const EventWriterOptions& options,
                  Clock& clock = Clock::Real());

  void AddScalar(std::string_view tag, double value, const CurvePoint& at);
  void AddHistogram(std::string_view tag, std::span<const float> values,
                    const CurvePoint& at);
  void Flush();

  // Events that were dropped so far, in both places.
  int64_t num_dropped() const EXCLUDES(mutex_);

  // For data that needs one place only: text, images.
  EventWriter& by_updates() { return by_updates_; }

 private:
  // The second writer; null for a point without frames.
  EventWriter* ByFrames(const CurvePoint& at) EXCLUDES(mutex_);

  const EventWriterOptions options_;
  Clock& clock_;
  EventWriter by_updates_;
  mutable Mutex mutex_;
  std::optional<EventWriter> by_frames_ GUARDED_BY(mutex_);
};

}  // namespace replicant::metrics
