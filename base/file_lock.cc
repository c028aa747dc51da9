#include "base/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"

namespace replicant {
namespace {

int Open(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw IoError::FromErrno("open", file, errno);
  return fd;
}

// Whether the file system has no locks: Lustre without its mount option, and
// some network file systems. Every attempt to take a lock then succeeds, with a
// warning.
bool HasNoLocks(int error) {
  return error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP;
}

void WarnOfNoLocks(const std::filesystem::path& file, int error) {
  spdlog::warn(
      "{}: the file system has no locks ({}), so nothing keeps a second "
      "process out; hint: Lustre has them with its mount option `flock`",
      file.string(), std::strerror(error));
}

// Names this process in the file. Only messages use the name, so a full disk
// loses no more than that.
void NoteOwner(int fd) {
  const std::string owner = HostAndPid();
  if (::pwrite(fd, owner.data(), owner.size(), 0) ==
      static_cast<ssize_t>(owner.size())) {
    static_cast<void>(::ftruncate(fd, static_cast<off_t>(owner.size())));
  }
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& file, std::string_view what)
    : fd_(Open(file)) {
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    if (!HasNoLocks(error)) {
      ::close(fd_);
      if (error != EWOULDBLOCK) throw IoError::FromErrno("lock", file, error);
      throw IoError(fmt::format("{}: in use by process {}", what,
                                ReadFile(file, /*max_size_bytes=*/4096)));
    }
    WarnOfNoLocks(file, error);
  }
  NoteOwner(fd_);
}

FileLock FileLock::Await(const std::filesystem::path& file) {
  const int fd = Open(file);
  FileLock lock(fd);
  int operation = LOCK_EX | LOCK_NB;
  while (::flock(fd, operation) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) {
      spdlog::info("waits for process {}, which holds {}",
                   ReadFile(file, /*max_size_bytes=*/4096), file.string());
      operation = LOCK_EX;
      continue;
    }
    if (!HasNoLocks(errno)) throw IoError::FromErrno("lock", file, errno);
    WarnOfNoLocks(file, errno);
    break;
  }
  NoteOwner(fd);
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  // closing releases the lock
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace replicant
