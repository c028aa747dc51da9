#include "tests/support/stalled_disk.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

namespace replicant::testing {
namespace {

constexpr const char* kVariable = "REPLICANT_STALLED_DISK";

void AwaitDisk() {
  const char* file = std::getenv(kVariable);
  while (file != nullptr && ::access(file, F_OK) == 0) {
    ::poll(nullptr, 0, /*timeout_ms=*/5);
  }
}

}  // namespace

StalledDisk::StalledDisk(std::filesystem::path file) : file_(std::move(file)) {
  ::setenv(kVariable, file_.c_str(), /*overwrite=*/1);
}

StalledDisk::~StalledDisk() {
  Resume();
  ::unsetenv(kVariable);
}

void StalledDisk::Stall() const { std::ofstream(file_) << ""; }

void StalledDisk::Resume() const { std::filesystem::remove(file_); }

std::string StalledDisk::Environment() const {
  return std::string(kVariable) + "=" + file_.string();
}

}  // namespace replicant::testing

// in the place of the C library's
extern "C" int fsync(int fd) {
  replicant::testing::AwaitDisk();
  return static_cast<int>(::syscall(SYS_fsync, fd));
}

extern "C" int fdatasync(int fd) {
  replicant::testing::AwaitDisk();
  return static_cast<int>(::syscall(SYS_fdatasync, fd));
}
