#include "base/fs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace replicant {
namespace {

// Closes a file descriptor at the end of its scope.
struct FdCloser {
  int fd;
  ~FdCloser() { ::close(fd); }
};

std::filesystem::path FolderOf(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// Numbers the temporary files of this process.
std::atomic<uint64_t> temporary_count{0};

struct Temporary {
  pid_t pid = 0;
  uint64_t number = 0;
};

// Reads "NAME.tmp-PID-N"; std::nullopt for any other name.
std::optional<Temporary> ParseTemporary(const std::string& name) {
  constexpr std::string_view kMark = ".tmp-";
  const size_t mark = name.rfind(kMark);
  if (mark == std::string::npos) return std::nullopt;
  const char* const end = name.data() + name.size();
  pid_t pid = 0;
  const auto pid_end =
      std::from_chars(name.data() + mark + kMark.size(), end, pid);
  if (pid_end.ec != std::errc() || pid <= 0 || pid_end.ptr == end ||
      *pid_end.ptr != '-') {
    return std::nullopt;
  }
  uint64_t number = 0;
  const auto number_end = std::from_chars(pid_end.ptr + 1, end, number);
  if (number_end.ec != std::errc() || number_end.ptr != end) {
    return std::nullopt;
  }
  return Temporary{pid, number};
}

// A process of another user also counts as alive: kill() then fails with EPERM.
// The first process of a container has the number of the one before it, and
// was given fewer names.
bool IsStale(const Temporary& temporary) {
  if (temporary.pid == ::getpid()) return temporary.number >= temporary_count;
  return ::kill(temporary.pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

std::filesystem::path TemporaryPathOf(const std::filesystem::path& path) {
  return fmt::format("{}.tmp-{}-{}", path.string(), ::getpid(),
                     temporary_count.fetch_add(1));
}

int RemoveStaleTemporaries(const std::filesystem::path& folder) {
  int count = 0;
  std::error_code error;
  std::filesystem::directory_iterator entries(folder, error);
  for (; !error && entries != std::filesystem::directory_iterator();
       entries.increment(error)) {
    const auto temporary = ParseTemporary(entries->path().filename().string());
    if (!temporary || !IsStale(*temporary)) continue;
    std::error_code ignored;
    if (std::filesystem::remove_all(entries->path(), ignored) > 0) ++count;
  }
  return count;
}

AtomicFile::AtomicFile(std::filesystem::path path, unsigned mode)
    : path_(std::move(path)) {
  // a unique name, so that two writers of one path never share a temporary
  // file; the leftover of a crashed process is skipped
  do {
    temporary_path_ = TemporaryPathOf(path_);
    fd_ = ::open(temporary_path_.c_str(),
                 O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  } while (fd_ < 0 && errno == EEXIST);
  if (fd_ < 0) throw IoError::FromErrno("create", temporary_path_, errno);
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(temporary_path_.c_str());
}

void AtomicFile::Write(std::span<const std::byte> bytes) {
  REPLICANT_CHECK(fd_ >= 0, "write to {} after Commit()", path_.string());
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      throw IoError::FromErrno("write", temporary_path_, errno);
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::Write(std::string_view text) {
  Write(std::as_bytes(std::span(text)));
}

void AtomicFile::Commit() {
  REPLICANT_CHECK(fd_ >= 0, "second Commit() of {}", path_.string());
  if (::fsync(fd_) != 0)
    throw IoError::FromErrno("fsync", temporary_path_, errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    throw IoError::FromErrno("rename to", path_, errno);
  }
  ::close(std::exchange(fd_, -1));
  SyncFolder(FolderOf(path_));
}

void AtomicWriteFile(const std::filesystem::path& path, std::string_view text,
                     unsigned mode) {
  AtomicFile file(path, mode);
  file.Write(text);
  file.Commit();
}

std::string ReadFile(const std::filesystem::path& path,
                     uint64_t max_size_bytes) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError::FromErrno("open", path, errno);
  const FdCloser closer{fd};

  struct stat status {};
  if (::fstat(fd, &status) != 0) throw IoError::FromErrno("stat", path, errno);
  if (S_ISDIR(status.st_mode)) throw IoError::FromErrno("read", path, EISDIR);

  // the stated size is a hint only (0 for a pipe or a file of /proc): read on
  // until the end; one byte more than the file holds finds it at once
  std::string bytes;
  size_t size = 0;
  size_t capacity =
      std::max<size_t>(static_cast<size_t>(status.st_size) + 1, 4096);
  while (true) {
    if (capacity > max_size_bytes) capacity = max_size_bytes + 1;
    bytes.resize(capacity);
    const ssize_t count = ::read(fd, bytes.data() + size, capacity - size);
    if (count < 0) {
      if (errno == EINTR) continue;
      throw IoError::FromErrno("read", path, errno);
    }
    if (count == 0) break;
    size += static_cast<size_t>(count);
    if (size > max_size_bytes) {
      throw IoError(fmt::format("read: {}: larger than the allowed {} bytes",
                                path.string(), max_size_bytes));
    }
    if (size == capacity) capacity += capacity / 2;
  }
  bytes.resize(size);
  return bytes;
}

std::string WhyMissing(const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return "";
  return error ? error.message() : "no such path";
}

void MakeFolders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) throw IoError::FromErrno("create folder", path, error.value());
}

void SyncFolder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) throw IoError::FromErrno("open folder", folder, errno);
  const FdCloser closer{fd};
  // some file systems cannot sync a folder
  if (::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP) {
    throw IoError::FromErrno("fsync", folder, errno);
  }
}

TemporaryFolder::TemporaryFolder(std::string_view name) {
  std::error_code error;
  const std::filesystem::path parent =
      std::filesystem::temp_directory_path(error);
  if (error) {
    const char* const given = std::getenv("TMPDIR");
    throw IoError(fmt::format("TMPDIR={}: {}; expected a folder",
                              given == nullptr ? "" : given, error.message()));
  }
  std::string pattern = (parent / fmt::format("{}-XXXXXX", name)).string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    throw IoError::FromErrno("create folder", pattern, errno);
  }
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code error;
  std::filesystem::remove_all(path_, error);
  if (error) spdlog::warn("remove {}: {}", path_.string(), error.message());
}

}  // namespace replicant
