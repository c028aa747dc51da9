#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/metrics/append_file.h"
#include "base/mutex.h"

namespace replicant::metrics {

// How the name of an event file begins.
inline constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

struct EventWriterOptions {
  // Folder of the file; created with its parents. TensorBoard shows each folder
  // with event files as one run.
  std::filesystem::path folder;
  // Events reach the file at the first Add...() this long after the last flush.
  // 0 flushes every time.
  Clock::Duration flush_interval = std::chrono::seconds(10);
  // As in AppendFileOptions.
  DiskQueue* disk = nullptr;
};

// Writes scalars, histograms, images and text over steps for TensorBoard, into
// a new file
//
//   <folder>/events.out.tfevents.<seconds since 1970>.<host>.<pid>.<n>
//
// where n makes the name unique. A restarted run opens its own file next to the
// old one and TensorBoard joins them. Where steps repeat, TensorBoard shows
// both or drops the older ones (its flag --purge_orphaned_data).
//
// A tag names a series. TensorBoard groups tags by the part before the first
// "/": "learner/critic_loss" (docs/metrics.md has the rules). Steps are any
// int64, usually ascending.
//
// Errors: InvalidArgument for an empty tag, a tag over 1000 bytes or text or an
// image that is too long. Events that cannot be written are dropped and
// counted, see AppendFile.
//
// Thread-safety: any thread.
class EventWriter {
 public:
  // Throws InvalidArgument for a bad option, and IoError if the folder or the
  // file cannot be made for another reason than a full disk.
  explicit EventWriter(EventWriterOptions options,
                       Clock& clock = Clock::Real());
  // Flushes.
  ~EventWriter();

  // Stored as float32, NaN and infinities included.
  void AddScalar(std::string_view tag, double value, int64_t step)
      EXCLUDES(mutex_);
  // Text in Markdown; at most 16 MiB.
  void AddText(std::string_view tag, std::string_view markdown, int64_t step)
      EXCLUDES(mutex_);
  // The distribution of the finite values in 30 buckets, as TensorBoard's own
  // writers have. O(values).
  void AddHistogram(std::string_view tag, std::span<const float> values,
                    int64_t step) EXCLUDES(mutex_);
  // A PNG or GIF file, at most 16 MiB; TensorBoard plays an animated GIF.
  void AddImage(std::string_view tag, int height, int width,
                std::string_view image, int64_t step) EXCLUDES(mutex_);
  void Flush() EXCLUDES(mutex_);

  // Removes the events of later steps from the folder, by CutEvents()
  // (base/metrics/rewind.h): its files have no other writer. Further events go
  // to a new file, since a reader does not expect one to shrink. Throws
  // IoError, changing nothing, if that cannot be made.
  void Rewind(int64_t step) EXCLUDES(mutex_);

  // Events that were dropped so far.
  int64_t num_dropped() const EXCLUDES(mutex_);
  // The file that events go to.
  std::filesystem::path path() const EXCLUDES(mutex_);

 private:
  // A new file with its header.
  std::unique_ptr<AppendFile> MakeFile() const;
  // Adds the event of one serialised Summary.Value.
  void Add(std::string_view summary_value, int64_t step) EXCLUDES(mutex_);

  const EventWriterOptions options_;
  Clock& clock_;
  mutable Mutex mutex_;
  std::unique_ptr<AppendFile> file_ GUARDED_BY(mutex_);
  bool is_empty_ GUARDED_BY(mutex_) = true;
  int64_t num_dropped_before_ GUARDED_BY(mutex_) = 0;  // of earlier files
  Clock::TimePoint last_flush_ GUARDED_BY(mutex_);
};

}  // namespace replicant::metrics
