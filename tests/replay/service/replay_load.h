#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "base/error.h"

namespace replicant::replay::testing {

// The work done by a replay_load process.
struct LoadReport {
  std::atomic<int64_t> rounds{0};  // episodes written, or batches read
  std::atomic<int64_t> steps{0};   // acknowledged
  // of a reader that keeps frames (BatchReaderMetrics)
  std::atomic<int64_t> kept_bytes{0};
  std::atomic<int64_t> evicted_frames{0};
  std::atomic<int64_t> drawn_frames{0};
  std::atomic<int64_t> drawn_kept_frames{0};
};

// Bytes of a frame of `replay_load frames`, and frames of a stack.
inline constexpr int64_t kLoadFrameBytes = 40 * 40 * 3;
inline constexpr int64_t kLoadStack = 3;

// A LoadReport in a file that several processes share; made if it is not there.
class LoadReportFile {
 public:
  explicit LoadReportFile(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ::ftruncate(fd, sizeof(LoadReport)) != 0) {
      throw IoError::FromErrno("open", path, errno);
    }
    memory_ = ::mmap(nullptr, sizeof(LoadReport), PROT_READ | PROT_WRITE,
                     MAP_SHARED, fd, 0);
    ::close(fd);
    if (memory_ == MAP_FAILED) throw IoError::FromErrno("map", path, errno);
  }
  ~LoadReportFile() { ::munmap(memory_, sizeof(LoadReport)); }
  LoadReportFile(const LoadReportFile&) = delete;
  LoadReportFile& operator=(const LoadReportFile&) = delete;

  // Zeros are an empty report.
  LoadReport& operator*() const { return *static_cast<LoadReport*>(memory_); }
  LoadReport* operator->() const { return static_cast<LoadReport*>(memory_); }

 private:
  void* memory_ = nullptr;
};

}  // namespace replicant::replay::testing
