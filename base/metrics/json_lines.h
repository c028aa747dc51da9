#pragma once

#include <fmt/format.h>

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/metrics/append_file.h"
#include "base/mutex.h"

namespace replicant::metrics {

// One JSON object (RFC 8259), its keys in the order of the calls:
//
//   JsonObject().Add("step", 100).Add("loss", 0.25).Add("task", "lqr-2")
//
// JSON has no NaN and no infinity. They are written as the strings "NaN",
// "Infinity" and "-Infinity", which Python's float() and JavaScript's Number()
// read back, so that a diverged loss differs from a missing one. Other doubles
// are written with the fewest digits that read back to the same value.
// Text is made valid UTF-8. A key that is added twice is a bug (checked).
//
// Thread-safety: one thread at a time.
class JsonObject {
 public:
  // A number, or true or false.
  template <std::integral T>
  JsonObject& Add(std::string_view key, T value) {
    return AddMember(key, fmt::to_string(value));
  }
  JsonObject& Add(std::string_view key, double value);
  JsonObject& Add(std::string_view key, std::string_view text);
  JsonObject& Add(std::string_view key, std::span<const double> values);

  // "{...}", without a newline.
  std::string ToString() const { return "{" + members_ + "}"; }

 private:
  JsonObject& AddMember(std::string_view key, std::string_view json);

  std::set<std::string> keys_;
  // the text between the braces
  std::string members_;
};

struct JsonLinesOptions {
  // The file is created if missing, else appended to. Its folder must exist.
  std::filesystem::path path;
  // As in EventWriterOptions.
  Clock::Duration flush_interval = std::chrono::seconds(10);
  DiskQueue* disk = nullptr;
};

// Appends JSON objects to a file, one per line, for scripts (pandas.read_json
// with lines=True, jq).
//
// A restarted run continues the same file. A torn line at its end, left by a
// crash, is cut off first with a warning in the log, so that every line of the
// file is a whole object.
//
// Thread-safety: any thread. One process writes a file.
class JsonLinesWriter {
 public:
  // Throws InvalidArgument for a negative interval. Throws IoError, leaving the
  // file unchanged, if it does not end in JSON lines or cannot be opened for
  // another reason than a full disk.
  explicit JsonLinesWriter(JsonLinesOptions options,
                           Clock& clock = Clock::Real());

  // Adds a line. Throws InvalidArgument for more than 1 MiB. Lines that cannot
  // be written are dropped and counted, see AppendFile.
  void Write(const JsonObject& object) EXCLUDES(mutex_);

  void Flush() EXCLUDES(mutex_);

  // Removes the lines of later steps, by CutJsonLines()
  // (base/metrics/rewind.h).
  void Rewind(int64_t step) EXCLUDES(mutex_);

  // Lines that were dropped so far.
  int64_t num_dropped() const EXCLUDES(mutex_);

 private:
  const JsonLinesOptions options_;
  Clock& clock_;
  mutable Mutex mutex_;
  AppendFile file_ GUARDED_BY(mutex_);
  Clock::TimePoint last_flush_ GUARDED_BY(mutex_);
};

}  // namespace replicant::metrics
