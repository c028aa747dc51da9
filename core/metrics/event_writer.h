#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/metrics/append_file.h"
#include "core/metrics/png.h"

namespace replicant::metrics {

struct EventWriterOptions {
  // Where the file goes; created with its parents. TensorBoard shows each
  // folder that holds an event file as one run.
  std::filesystem::path folder;
  // What is added reaches the file at the first Add...() this long after the
  // last flush. 0 flushes every time.
  Clock::Duration flush_interval = std::chrono::seconds(10);
  // Buckets of a histogram; TensorBoard's own writers use 30.
  int num_histogram_buckets = 30;
};

// Writes what TensorBoard shows: scalars, images, histograms and text over
// steps, into a new file
//
//   <folder>/events.out.tfevents.<seconds since 1970>.<host>.<pid>.<n>
//
// where n makes the name unused. A restarted run opens its own file beside the
// old one and TensorBoard joins them; where steps repeat it shows both, or
// drops the older ones, as its flag --purge_orphaned_data says.
//
// Tags name a series and are grouped by what stands before the first "/":
// "learner/critic_loss" (docs/metrics.md has the rules). Steps are the
// caller's, any int64, usually ascending.
//
// Errors: InvalidArgument for an empty tag, a tag over 1000 bytes or what the
// method says; IoError if the file cannot be written, see AppendFile. After
// either the writer can still be used.
//
// Thread-safety: any thread.
class EventWriter {
 public:
  // Throws InvalidArgument for a bad option, and IoError if the folder or the
  // file cannot be made.
  explicit EventWriter(EventWriterOptions options,
                       Clock& clock = Clock::Real());
  // Flushes; a failure is logged.
  ~EventWriter();

  // Stored as float32, NaN and infinities included.
  void AddScalar(std::string_view tag, double value, int64_t step)
      EXCLUDES(mutex_);
  // Text in Markdown; at most 1 MiB.
  void AddText(std::string_view tag, std::string_view markdown, int64_t step)
      EXCLUDES(mutex_);
  // Throws as EncodePng() does.
  void AddImage(std::string_view tag, const ImageView& image, int64_t step)
      EXCLUDES(mutex_);
  // How `values` are spread; see MakeHistogram(). O(values). Values that are
  // not finite are left out and counted in the scalar "<tag>/not_finite",
  // which is written only when there are some.
  void AddHistogram(std::string_view tag, std::span<const float> values,
                    int64_t step) EXCLUDES(mutex_);

  void Flush() EXCLUDES(mutex_);

  const std::filesystem::path& path() const { return path_; }

 private:
  // Adds the event of one serialised Summary.Value.
  void Add(std::string_view summary_value, int64_t step) EXCLUDES(mutex_);

  const EventWriterOptions options_;
  Clock& clock_;
  std::filesystem::path path_;
  Mutex mutex_;
  std::optional<AppendFile> file_ GUARDED_BY(mutex_);
  Clock::TimePoint last_flush_ GUARDED_BY(mutex_);
};

}  // namespace replicant::metrics
