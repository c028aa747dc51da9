#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/metrics/event_writer.h"

namespace replicant::metrics {

// A place on the curves of a run.
struct CurvePoint {
  int64_t step = 0;    // the learner's updates
  int64_t frames = 0;  // environment frames; 0 if there are none
};

// Writes each point of a run's curves twice:
//
//   FOLDER/by_updates/WRITER/   over the learner's updates
//   FOLDER/by_frames/WRITER/    over environment frames
//
// TensorBoard shows each folder as a run. Each process that writes curves of a
// run has its name, such as "learner": TensorBoard's Python loader reads only
// the newest file of a folder while a run goes on.
//
// Errors and thread-safety as for EventWriter.
class Curves {
 public:
  static constexpr const char* kByUpdates = "by_updates";
  static constexpr const char* kByFrames = "by_frames";

  // `options.folder` is FOLDER. The folder over frames is made with the first
  // point that has frames.
  Curves(const std::string& writer, const EventWriterOptions& options,
         Clock& clock = Clock::Real());

  void AddScalar(std::string_view tag, double value, const CurvePoint& at);
  void AddHistogram(std::string_view tag, std::span<const float> values,
                    const CurvePoint& at);
  void Flush();
  // Removes the points after `step`, and over frames those after `frames` if
  // given: the run goes on from there. Errors as for EventWriter::Rewind().
  void Rewind(int64_t step, std::optional<int64_t> frames) EXCLUDES(mutex_);

  // Events that were dropped so far, in both places.
  int64_t num_dropped() const EXCLUDES(mutex_);

  // For data that needs one place only: text, images.
  EventWriter& by_updates() { return by_updates_; }

 private:
  // The second writer; null for a point without frames.
  EventWriter* ByFrames(const CurvePoint& at) EXCLUDES(mutex_);

  const EventWriterOptions frames_options_;
  Clock& clock_;
  EventWriter by_updates_;
  mutable Mutex mutex_;
  std::optional<EventWriter> by_frames_ GUARDED_BY(mutex_);
};

}  // namespace replicant::metrics
