#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/file_lock.h"
#include "base/mutex.h"

namespace replicant::kernels {

// The plans of a library that were fastest when timed, by problem: in memory,
// and in a file that processes share.
//
// FOLDER/tuned_plans.txt is text, sorted by problem:
//
//   replicant tuned plans, format 1
//   PROBLEM <tab> PLAN <tab> TIME us <tab> TIME OF THE LIBRARY'S CHOICE us
//
// A problem names everything that a choice depends on: device, driver, library,
// shapes. A process that tunes holds the lock of FOLDER/tuned_plans.lock from
// reading the file until it has replaced it, so that a problem is tuned once
// and no entry is lost. A file that cannot be parsed is never changed. In that
// case, or if the folder cannot be written, the cache warns once and continues
// in memory.
//
// Thread-safety: any thread. Objects of one file in one process behave as
// separate processes do.
class PlanCache {
 public:
  struct Entry {
    bool operator==(const Entry&) const = default;

    std::string plan;  // the library's name for it; not empty
    double time_us = 0.0;
    // Time of the plan that the library names first; 0 if that plan fails.
    double first_time_us = 0.0;
  };

  // Reads the file, if there is one. Makes the folder. An empty `folder` keeps
  // entries in memory only, with a warning.
  explicit PlanCache(const std::filesystem::path& folder);

  // $XDG_CACHE_HOME/replicant, or $HOME/.cache/replicant; empty if neither
  // variable is set.
  static std::filesystem::path DefaultFolder();

  // Empty without a folder.
  const std::filesystem::path& file() const { return file_; }

  // Hands the problem's entry to `take`. If there is none, or `take` refuses
  // it, calls `tune`, one caller at a time of all processes that share the
  // file, unless another has added an entry meanwhile that `take` accepts. The
  // result of `tune`, if any, becomes the entry. Neither text holds a tab or
  // the end of a line. Throws what the functions throw.
  void FindOrTune(const std::string& problem,
                  const std::function<bool(const Entry&)>& take,
                  const std::function<std::optional<Entry>()>& tune)
      EXCLUDES(turn_, mutex_);

 private:
  using Entries = std::map<std::string, Entry>;

  std::optional<Entry> Find(const std::string& problem) EXCLUDES(mutex_);
  // The lock of the file; nullopt, with a warning, if it cannot be taken.
  std::optional<FileLock> LockFile() EXCLUDES(mutex_);
  // Adds the file's entries, replacing those in memory.
  void ReadFile() EXCLUDES(mutex_);
  void WriteFile() EXCLUDES(mutex_);
  // Warns, and uses only memory from now on.
  void KeepToMemory(const std::string& why) REQUIRES(mutex_);

  std::filesystem::path file_;
  // Held while tuning; taken before mutex_.
  Mutex turn_;
  Mutex mutex_;
  Entries entries_ GUARDED_BY(mutex_);
  bool is_in_memory_ GUARDED_BY(mutex_) = false;
};

}  // namespace replicant::kernels
