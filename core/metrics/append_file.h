#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace replicant::metrics {

// A file that grows by whole records.
//
// Records gather in memory and reach the kernel together in Flush(). If that
// fails half way (full disk, quota), the file is cut back to the records it
// held before, so that what is written later can still be read. A crash of the
// process loses what was not flushed and, in the middle of a flush, may leave
// one torn record at the end. Flush() does not force the disk (no fsync): a
// power cut may lose more.
//
// Thread-safety: one thread at a time. One process writes a file.
class AppendFile {
 public:
  enum class Mode {
    kCreate,  // a new file; an error if it exists
    kAppend,  // behind what is there
  };

  // Throws IoError if the file cannot be opened.
  AppendFile(std::filesystem::path path, Mode mode);
  // Flushes; a failure is logged.
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Adds a record; flushes first when a mebibyte has gathered. Throws as
  // Flush() does; the new record is not added then.
  void Append(std::string_view record);
  // Throws IoError if the records cannot be written. They are dropped then,
  // which the message says, and the object can still be used.
  void Flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::string pending_;
  int64_t num_pending_ = 0;
};

}  // namespace replicant::metrics
