#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/mutex.h"
#include "base/process.h"

namespace replicant::fleet {

// Copies a run's folder to where it is kept, a bucket or another disk, by
// fleet.copy_command: after each checkpoint, and at the end. One command runs
// at a time; its output goes to logs/copy.log. A copy that fails is a warning,
// and the next checkpoint tries again. The command is killed with this object.
//
// Thread-safety: one thread at a time.
class RunCopy {
 public:
  // No command: nothing is copied. `find_newest` returns the name of the newest
  // complete checkpoint, empty if there is none, or throws IoError; it is
  // called on the thread of `disk`, which outlives this object.
  RunCopy(const std::string& command, const std::filesystem::path& run,
          std::function<std::string()> find_newest, DiskQueue* disk);

  // Starts the command if there is a checkpoint that the last copy did not
  // find, and notes the command's end. Looks once a second; does not wait.
  void Step(Clock::TimePoint now);
  // Copies once more and waits for the end, at most `patience`. Returns whether
  // the copy is good; true without a command.
  bool Finish(Clock::Duration patience);

 private:
  // What the disk's thread has found.
  struct Found {
    Mutex mutex;
    std::string newest GUARDED_BY(mutex);  // complete checkpoint
    bool is_looking GUARDED_BY(mutex) = false;
  };

  // Looks for checkpoints on the disk's thread; returns the newest one of the
  // last look.
  std::string Look(Clock::TimePoint now);
  void Start();
  // Notes the end of the command after waiting for `timeout`; false while it
  // runs.
  bool HasEnded(std::chrono::milliseconds timeout);

  const std::vector<std::string> words_;  // empty: no command
  const std::function<std::string()> find_newest_;
  const std::filesystem::path log_;
  DiskQueue& disk_;
  const std::shared_ptr<Found> found_ = std::make_shared<Found>();
  Clock::TimePoint next_look_{};
  std::unique_ptr<Process> process_;
  std::string copied_;   // newest checkpoint at the start of the last copy
  bool is_good_ = true;  // the last copy
};

// Brings a run's folder back by fleet.fetch_command and waits for it, unless
// the folder holds a run. Returns whether it holds one then. Throws IoError
// with the command's last words if it fails. A folder that an earlier call did
// not bring back whole is fetched again: the file RUN.fetching beside it says
// so. One process at a time fetches, with a lock on RUN.fetching.lock; the
// others wait for it.
bool FetchRun(const std::string& command, const std::filesystem::path& run);

}  // namespace replicant::fleet
