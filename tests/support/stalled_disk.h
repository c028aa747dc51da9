#pragma once

#include <filesystem>
#include <string>

namespace replicant::testing {

// A disk on which fsync() stands still: a program that links the CMake object
// library stalled_disk waits in fsync() and fdatasync() while a file exists.
// The variable of Environment() names the file, to a child process too.
class StalledDisk {
 public:
  // The disk works at first. `file` must not exist.
  explicit StalledDisk(std::filesystem::path file);
  ~StalledDisk();
  StalledDisk(const StalledDisk&) = delete;
  StalledDisk& operator=(const StalledDisk&) = delete;

  void Stall() const;
  void Resume() const;
  // "NAME=value".
  std::string Environment() const;

 private:
  const std::filesystem::path file_;
};

}  // namespace replicant::testing
