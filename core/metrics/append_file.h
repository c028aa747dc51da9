#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace replicant::metrics {

// A file that grows by whole records.
//
// Records gather in memory and reach the kernel together in Flush(). If a flush
// fails half way (full disk, quota), the file is cut back to its earlier
// records, so that later ones stay readable. A crash of the process loses the
// records since the last flush; a crash during a flush may leave one torn
// record at the end. Flush() does not call fsync: a power cut may lose more.
//
// Thread-safety: one thread at a time. One process writes a file.
class AppendFile {
 public:
  enum class Mode {
    kCreate,  // a new file; an error if it exists
    kAppend,  // after the existing records
  };

  // Throws IoError if the file cannot be opened.
  AppendFile(std::filesystem::path path, Mode mode);
  // Flushes; a failure is logged.
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Adds a record, after a flush if a mebibyte has gathered. Throws as Flush()
  // does; the new record is not added then.
  void Append(std::string_view record);
  // Throws IoError if the records cannot be written. The message says that they
  // are dropped; the object stays usable.
  void Flush();

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::string pending_;
  int64_t num_pending_ = 0;
};

}  // namespace replicant::metrics
