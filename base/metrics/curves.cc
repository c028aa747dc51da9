#include "base/metrics/curves.h"

#include "base/metrics/rewind.h"

namespace replicant::metrics {
namespace {

EventWriterOptions Below(EventWriterOptions options, const char* axis,
                         const std::string& writer) {
  options.folder = options.folder / axis / writer;
  return options;
}

}  // namespace

Curves::Curves(const std::string& writer, const EventWriterOptions& options,
               Clock& clock)
    : frames_options_(Below(options, kByFrames, writer)),
      clock_(clock),
      by_updates_(Below(options, kByUpdates, writer), clock) {}

EventWriter* Curves::ByFrames(const CurvePoint& at) {
  if (at.frames == 0) return nullptr;
  const MutexLock lock(mutex_);
  if (!by_frames_) by_frames_.emplace(frames_options_, clock_);
  return &*by_frames_;
}

void Curves::Rewind(int64_t step, std::optional<int64_t> frames) {
  by_updates_.Rewind(step);
  if (!frames) return;
  const MutexLock lock(mutex_);
  if (by_frames_) return by_frames_->Rewind(*frames);
  PostOrRun(frames_options_.disk,
            [folder = frames_options_.folder, last = *frames] {
              CutEvents(folder, last);
            });
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
