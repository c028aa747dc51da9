#include "core/base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/base/process.h"

namespace replicant {

FileLock::FileLock(const std::filesystem::path& file, std::string_view what)
    : fd_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw IoError::FromErrno("open", file, errno);
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    ::close(fd_);
    if (error != EWOULDBLOCK) throw IoError::FromErrno("lock", file, error);
    throw IoError(fmt::format("{}: in use by process {}", what,
                              ReadFile(file, /*max_size_bytes=*/4096)));
  }
  // the owner is only used in the message above: a full disk costs no more
  // than its name
  const std::string owner = HostAndPid();
  if (::pwrite(fd_, owner.data(), owner.size(), 0) ==
      static_cast<ssize_t>(owner.size())) {
    static_cast<void>(::ftruncate(fd_, static_cast<off_t>(owner.size())));
  }
}

FileLock::FileLock(FileLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  // closing releases the lock
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace replicant
