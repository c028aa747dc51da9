#pragma once

#include <filesystem>
#include <string_view>

namespace replicant {

// An exclusive lock, held while the object lives, on a file that names its
// owner. The kernel releases the lock of a process that dies, so the file may
// stay behind and means nothing by itself.
//
// Thread-safety: one thread at a time.
class FileLock {
 public:
  // Takes the lock; creates the file if it is missing. Throws IoError if the
  // file cannot be created, or if another owner holds the lock:
  // "<what>: in use by process <host>/<pid>".
  FileLock(const std::filesystem::path& file, std::string_view what);
  // As above, after waiting, with a line in the log, until every other owner
  // has released the lock. Throws IoError if the file cannot be created or
  // locked.
  static FileLock Await(const std::filesystem::path& file);
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;

 private:
  explicit FileLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace replicant
