#include "base/metrics/event_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/event_encoding.h"
#include "base/metrics/rewind.h"
#include "base/process.h"

namespace replicant::metrics {
namespace {

constexpr double kNanosPerSecond = 1e9;
constexpr size_t kMaxTagBytes = 1000;
constexpr size_t kMaxTextBytes = size_t{1} << 24;
constexpr size_t kMaxImageBytes = size_t{1} << 24;
constexpr int kHistogramBuckets = 30;

// Numbers the event files of this process.
std::atomic<uint64_t> file_count{0};

double UnixSeconds(const Clock& clock) {
  return static_cast<double>(clock.UnixNanos()) / kNanosPerSecond;
}

std::filesystem::path UnusedPath(const std::filesystem::path& folder,
                                 int64_t unix_s) {
  // "host/pid" becomes the "host.pid" that TensorBoard's own writers use
  std::string host_and_pid = HostAndPid();
  std::replace(host_and_pid.begin(), host_and_pid.end(), '/', '.');
  std::filesystem::path path;
  do {
    path = folder / fmt::format("{}{}.{}.{}", kEventFilePrefix, unix_s,
                                host_and_pid, file_count.fetch_add(1));
  } while (std::filesystem::exists(path));
  return path;
}

void CheckOptions(const EventWriterOptions& options) {
  if (options.flush_interval < Clock::Duration::zero()) {
    throw InvalidArgument(
        fmt::format("EventWriter: flush_interval must be >= 0, got {} ns",
                    options.flush_interval.count()));
  }
}

void CheckTag(std::string_view tag) {
  if (tag.empty() || tag.size() > kMaxTagBytes) {
    throw InvalidArgument(
        fmt::format("EventWriter: a tag must have 1 to {} bytes, got {} ('{}')",
                    kMaxTagBytes, tag.size(), tag.substr(0, 40)));
  }
}

}  // namespace

EventWriter::EventWriter(EventWriterOptions options, Clock& clock)
    : options_(std::move(options)), clock_(clock) {
  CheckOptions(options_);
  MakeFolders(options_.folder);
  MutexLock lock(mutex_);
  file_ = MakeFile();
  last_flush_ = clock_.Now();
}

std::unique_ptr<AppendFile> EventWriter::MakeFile() const {
  const double now_s = UnixSeconds(clock_);
  // write the header at once: TensorBoard then lists the run, and an unwritable
  // folder is found at the start of a run
  return std::make_unique<AppendFile>(
      UnusedPath(options_.folder, static_cast<int64_t>(now_s)),
      AppendFile::Mode::kCreate,
      AppendFileOptions{.disk = options_.disk,
                        .header = FrameRecord(EncodeVersionEvent(now_s)),
                        .clock = &clock_});
}

EventWriter::~EventWriter() = default;

void EventWriter::AddScalar(std::string_view tag, double value, int64_t step) {
  CheckTag(tag);
  Add(EncodeScalar(tag, value), step);
}

void EventWriter::AddText(std::string_view tag, std::string_view markdown,
                          int64_t step) {
  CheckTag(tag);
  if (markdown.size() > kMaxTextBytes) {
    throw InvalidArgument(
        fmt::format("EventWriter: text '{}' may have {} bytes, got {}", tag,
                    kMaxTextBytes, markdown.size()));
  }
  Add(EncodeText(tag, markdown), step);
}

void EventWriter::AddHistogram(std::string_view tag,
                               std::span<const float> values, int64_t step) {
  CheckTag(tag);
  Add(EncodeHistogram(tag, MakeHistogram(values, kHistogramBuckets)), step);
}

void EventWriter::AddImage(std::string_view tag, int height, int width,
                           std::string_view image, int64_t step) {
  CheckTag(tag);
  if (image.size() > kMaxImageBytes) {
    throw InvalidArgument(
        fmt::format("EventWriter: image '{}' may have {} bytes, got {}", tag,
                    kMaxImageBytes, image.size()));
  }
  Add(EncodeImage(tag, height, width, image), step);
}

void EventWriter::Flush() {
  MutexLock lock(mutex_);
  last_flush_ = clock_.Now();
  file_->Flush();
}

void EventWriter::Rewind(int64_t step) {
  MutexLock lock(mutex_);
  if (!is_empty_) {
    std::unique_ptr<AppendFile> next = MakeFile();
    num_dropped_before_ += file_->num_dropped();
    // its end hands over what it has gathered
    file_ = std::move(next);
    is_empty_ = true;
  }
  PostOrRun(options_.disk,
            [folder = options_.folder, step] { CutEvents(folder, step); });
}

int64_t EventWriter::num_dropped() const {
  MutexLock lock(mutex_);
  return num_dropped_before_ + file_->num_dropped();
}

std::filesystem::path EventWriter::path() const {
  MutexLock lock(mutex_);
  return file_->path();
}

void EventWriter::Add(std::string_view summary_value, int64_t step) {
  const std::string record =
      FrameRecord(EncodeSummaryEvent(UnixSeconds(clock_), step, summary_value));
  MutexLock lock(mutex_);
  file_->Append(record);
  is_empty_ = false;
  const Clock::TimePoint now = clock_.Now();
  if (now - last_flush_ < options_.flush_interval) return;
  last_flush_ = now;
  file_->Flush();
}

}  // namespace replicant::metrics
