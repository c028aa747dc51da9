#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/disk_queue.h"

namespace replicant::metrics {

struct AppendFileOptions {
  // Writes the file; null: the calling thread writes it. Must outlive the
  // AppendFile.
  DiskQueue* disk = nullptr;
  // Bytes that a file begins with: written at once to an empty one.
  std::string header;
  Clock* clock = &Clock::Real();
};

// A file that grows by whole records whose loss is harmless: curves, logs.
//
// Records gather in memory and reach the kernel together in Flush(). Records
// that cannot be written (full disk, quota) are dropped and counted. The log
// says so at most once a minute. The file is cut back to its earlier records
// then, so that later ones stay readable. With a DiskQueue, a stalled disk
// delays records; up to a mebibyte of them waits, and further ones are dropped.
//
// A crash of the process loses the records since the last flush; a crash during
// a flush may leave one torn record at the end. Flush() does not call fsync: a
// power cut may lose more.
//
// Thread-safety: one thread at a time. One process writes a file.
class AppendFile {
 public:
  enum class Mode {
    kCreate,  // a new file; an error if it exists
    kAppend,  // after the existing records
  };

  // Throws IoError if the file cannot be opened, unless the disk is full: then
  // it is opened once there is room.
  AppendFile(std::filesystem::path path, Mode mode,
             AppendFileOptions options = {});
  // Flushes.
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Adds a record, after a flush if a mebibyte has gathered.
  void Append(std::string_view record);
  void Flush();
  // Hands over the gathered records, and then does `work` where the file is
  // written. It must own everything that it uses.
  void FlushThen(std::function<void()> work);

  // Records that were dropped so far.
  int64_t num_dropped() const;

  const std::filesystem::path& path() const;

 private:
  class File;

  // Hands the gathered records to the disk, after its earlier work.
  void Hand();

  DiskQueue* const disk_;
  // shared with the work that the disk has
  const std::shared_ptr<File> file_;
  std::future<void> writing_;
  std::string pending_;
  int64_t num_pending_ = 0;
};

}  // namespace replicant::metrics
