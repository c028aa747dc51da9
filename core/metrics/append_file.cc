#include "core/metrics/append_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/base/error.h"

namespace replicant::metrics {
namespace {

// Holds the records of a few seconds.
constexpr size_t kMaxPendingBytes = size_t{1} << 20;

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

}  // namespace

AppendFile::AppendFile(std::filesystem::path path, Mode mode)
    : path_(std::move(path)) {
  const int exclusive = mode == Mode::kCreate ? O_EXCL : 0;
  fd_ = ::open(path_.c_str(),
               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | exclusive, 0666);
  if (fd_ < 0) throw IoError::FromErrno("open", path_, errno);
}

AppendFile::~AppendFile() {
  try {
    Flush();
  } catch (const IoError& e) {
    spdlog::error("{}", e.what());
  }
  ::close(fd_);
}

void AppendFile::Append(std::string_view record) {
  if (pending_.size() >= kMaxPendingBytes) Flush();
  pending_ += record;
  ++num_pending_;
}

void AppendFile::Flush() {
  if (num_pending_ == 0) return;
  struct stat before {};
  const bool has_size = ::fstat(fd_, &before) == 0 && S_ISREG(before.st_mode);

  const int error = WriteAll(fd_, pending_);
  const int64_t num_records = std::exchange(num_pending_, 0);
  pending_.clear();
  if (error == 0) return;

  // a torn record would hide all later ones
  const bool is_whole = !has_size || ::ftruncate(fd_, before.st_size) == 0;
  throw IoError::FromErrno(
      fmt::format("write ({} records dropped{})", num_records,
                  is_whole ? "" : ", the last one torn"),
      path_, error);
}

}  // namespace replicant::metrics
