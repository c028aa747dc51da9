#include "base/rpc/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/rpc/envelope.h"

namespace replicant::rpc {
namespace {

constexpr const char* kName = "replicant";
constexpr std::string_view kLinkPrefix = "/memfd:replicant";
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// A file descriptor that is closed at the end of its scope.
struct OwnedFd {
  int fd;
  explicit OwnedFd(int opened) : fd(opened) {}
  ~OwnedFd() {
    if (fd >= 0) ::close(fd);
  }
  OwnedFd(const OwnedFd&) = delete;
  OwnedFd& operator=(const OwnedFd&) = delete;
  int Release() { return std::exchange(fd, -1); }
};

uint64_t LoadToken(uint64_t& word) {
  return std::atomic_ref<uint64_t>(word).load(std::memory_order_relaxed);
}

// Opens the memory file behind `path` for reading and writing. A path that
// leads to something else is not opened at all: that could wait, or do things.
int OpenMemoryFile(const std::string& path, std::string* why) {
  const OwnedFd probe(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (probe.fd < 0) {
    *why = fmt::format("{}: {}", path, std::strerror(errno));
    return -1;
  }
  // from here on the file cannot be exchanged for another
  const std::string pinned = fmt::format("/proc/self/fd/{}", probe.fd);
  std::array<char, 64> link{};
  const ssize_t length = ::readlink(pinned.c_str(), link.data(), link.size());
  if (length < 0 || !std::string_view(link.data(), static_cast<size_t>(length))
                         .starts_with(kLinkPrefix)) {
    *why = fmt::format("{} is not a sealed memory file", path);
    return -1;
  }
  const int fd = ::open(pinned.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) *why = fmt::format("{}: {}", path, std::strerror(errno));
  return fd;
}

}  // namespace

std::byte* SharedMemory::Map(int fd, size_t size_bytes, int flags) {
  void* mapped = ::mmap(nullptr, kHeaderBytes + size_bytes,
                        PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd,
                        /*offset=*/0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

std::shared_ptr<SharedMemory> SharedMemory::Create(size_t size_bytes) {
  const std::string what = fmt::format("{} bytes of memory", size_bytes);
  OwnedFd file(::memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.fd < 0) throw IoError::FromErrno("share", what, errno);
  // taken now: memory that is missing must not show at some later access
  const auto total = static_cast<off_t>(kHeaderBytes + size_bytes);
  if (::fallocate(file.fd, /*mode=*/0, /*offset=*/0, total) != 0 ||
      ::fcntl(file.fd, F_ADD_SEALS, kSeals) != 0) {
    throw IoError::FromErrno("share", what, errno);
  }
  std::byte* mapped = Map(file.fd, size_bytes, MAP_POPULATE);
  if (mapped == nullptr) throw IoError::FromErrno("share", what, errno);

  SharedMemoryHandle handle;
  handle.token[0] = RandomId();
  handle.token[1] = RandomId();
  handle.size_bytes = size_bytes;
  handle.pid = static_cast<uint32_t>(::getpid());
  handle.fd = static_cast<uint32_t>(file.fd);
  std::memcpy(mapped, handle.token, sizeof(handle.token));
  return std::shared_ptr<SharedMemory>(
      new SharedMemory(handle, file.Release(), mapped, /*is_creator=*/true));
}

std::shared_ptr<SharedMemory> SharedMemory::Open(
    const SharedMemoryHandle& handle, std::string* why) {
  const OwnedFd file(OpenMemoryFile(
      fmt::format("/proc/{}/fd/{}", handle.pid, handle.fd), why));
  if (file.fd < 0) return nullptr;
  struct stat info {};
  const int seals = ::fcntl(file.fd, F_GET_SEALS);
  constexpr uint64_t kMaxBytes =
      std::numeric_limits<off_t>::max() - uint64_t{kHeaderBytes};
  if (seals < 0 || (seals & kSeals) != kSeals || ::fstat(file.fd, &info) != 0 ||
      handle.size_bytes > kMaxBytes ||
      static_cast<uint64_t>(info.st_size) != kHeaderBytes + handle.size_bytes ||
      info.st_blocks * 512 < info.st_size) {
    *why =
        "the memory file is not sealed, not allocated in full, or of "
        "another size";
    return nullptr;
  }
  // not populated: a service's loop opens, and other threads write
  std::byte* mapped = Map(file.fd, handle.size_bytes, /*flags=*/0);
  if (mapped == nullptr) {
    *why = fmt::format("map: {}", std::strerror(errno));
    return nullptr;
  }
  std::shared_ptr<SharedMemory> opened(
      new SharedMemory(handle, /*fd=*/-1, mapped, /*is_creator=*/false));
  if (opened->IsWithdrawn()) {
    *why = "the memory file does not hold the token";
    return nullptr;
  }
  return opened;
}

SharedMemory::~SharedMemory() {
  if (is_creator_) {
    for (uint64_t& word : header()->token) {
      std::atomic_ref<uint64_t>(word).store(0, std::memory_order_relaxed);
    }
  }
  ::munmap(mapped_, kHeaderBytes + handle_.size_bytes);
  if (fd_ >= 0) ::close(fd_);
}

std::span<std::byte> SharedMemory::bytes() const {
  return {mapped_ + kHeaderBytes, handle_.size_bytes};
}

bool SharedMemory::IsWithdrawn() const {
  return LoadToken(header()->token[0]) != handle_.token[0] ||
         LoadToken(header()->token[1]) != handle_.token[1];
}

}  // namespace replicant::rpc
