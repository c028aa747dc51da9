#include "base/metrics/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/mutex.h"

namespace replicant::metrics {
namespace {

// Holds the records of a few seconds.
constexpr size_t kMaxPendingBytes = size_t{1} << 20;
// Interval at which the log repeats that records are dropped.
constexpr auto kWarningInterval = std::chrono::minutes(1);

// Writes all of `bytes`; returns 0, or the error number.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

// Whether an error ends by itself once there is room again.
bool IsLackOfRoom(int error) { return error == ENOSPC || error == EDQUOT; }

}  // namespace

// The open file. One thread at a time writes; any thread may count.
class AppendFile::File {
 public:
  File(std::filesystem::path path, Mode mode, const AppendFileOptions& options)
      : path_(std::move(path)),
        flags_(O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC |
               (mode == Mode::kCreate ? O_EXCL : 0)),
        header_(options.header),
        clock_(*options.clock) {
    const int error = Open();
    if (error != 0 && !IsLackOfRoom(error)) {
      throw IoError::FromErrno("open", path_, error);
    }
  }
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  // Writes whole records, or drops all of them.
  void Write(std::string_view bytes, int64_t num_records) {
    if (const int error = Open(); error != 0) {
      return Drop(num_records, std::generic_category().message(error));
    }
    struct stat before {};
    const bool has_size = ::fstat(fd_, &before) == 0 && S_ISREG(before.st_mode);
    std::string whole;
    if (has_size && before.st_size == 0 && !header_.empty()) {
      whole = header_ + std::string(bytes);
      bytes = whole;
    }
    const int error = WriteAll(fd_, bytes);
    if (error == 0) return;

    // a torn record would hide all later ones
    const bool is_whole = !has_size || ::ftruncate(fd_, before.st_size) == 0;
    Drop(num_records, std::generic_category().message(error) +
                          (is_whole ? "" : "; the last record is torn"));
  }

  void Drop(int64_t num_records, const std::string& why) EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    num_dropped_ += num_records;
    num_unreported_ += num_records;
    const Clock::TimePoint now = clock_.Now();
    if (next_warning_ && now < *next_warning_) return;
    next_warning_ = now + kWarningInterval;
    spdlog::warn("{}: {} records dropped: {}", path_.string(),
                 std::exchange(num_unreported_, 0), why);
  }

  int64_t num_dropped() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return num_dropped_;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  // Opens the file unless it is open; returns 0, or the error number.
  int Open() {
    if (fd_ < 0) fd_ = ::open(path_.c_str(), flags_, 0666);
    return fd_ < 0 ? errno : 0;
  }

  const std::filesystem::path path_;
  const int flags_;
  const std::string header_;
  Clock& clock_;
  int fd_ = -1;
  mutable Mutex mutex_;
  int64_t num_dropped_ GUARDED_BY(mutex_) = 0;
  int64_t num_unreported_ GUARDED_BY(mutex_) = 0;
  std::optional<Clock::TimePoint> next_warning_ GUARDED_BY(mutex_);
};

AppendFile::AppendFile(std::filesystem::path path, Mode mode,
                       AppendFileOptions options)
    : disk_(options.disk),
      file_(std::make_shared<File>(std::move(path), mode, options)) {
  if (!options.header.empty()) Hand();
}

AppendFile::~AppendFile() {
  if (num_pending_ > 0) Hand();
}

void AppendFile::Append(std::string_view record) {
  if (pending_.size() >= kMaxPendingBytes) Flush();
  if (pending_.size() >= kMaxPendingBytes) {
    return file_->Drop(1, "the disk has stalled");
  }
  pending_ += record;
  ++num_pending_;
}

void AppendFile::Flush() {
  // one piece of work at a time: delayed records stay here, bounded
  const bool is_writing = writing_.valid() && !IsDone(writing_);
  if (num_pending_ > 0 && !is_writing) Hand();
}

void AppendFile::FlushThen(std::function<void()> work) {
  if (num_pending_ > 0) Hand();
  writing_ = PostOrRun(disk_, std::move(work));
}

void AppendFile::Hand() {
  writing_ = PostOrRun(
      disk_,
      [file = file_, bytes = std::exchange(pending_, {}),
       count = std::exchange(num_pending_, 0)] { file->Write(bytes, count); });
}

int64_t AppendFile::num_dropped() const { return file_->num_dropped(); }

const std::filesystem::path& AppendFile::path() const { return file_->path(); }

}  // namespace replicant::metrics
