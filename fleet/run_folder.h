#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/file_lock.h"
#include "fleet/fleet_config.h"
#include "fleet/protocol/heartbeat.h"

namespace replicant::fleet {

enum class RunStatus {
  kRunning,   // or the fleet was killed
  kComplete,  // the run reached its end
  kStopped,   // on request, before its end
  kFailed,    // a role could not go on
};
// "running", "complete", "stopped", "failed".
std::string ToString(RunStatus status);

// The folder of a run.
//
//   config.yaml the configuration with every value; it fits the
//                  run's checkpoints
//   config.new.yaml  a changed one, until a resumed run has started with it
//   run.yaml       name, seed, program version, host and time of every start
//   state.yaml     status and incarnations, for a resumed run
//   status.json    what every role does (RunReport), once a second
//   run.key        the key pair of the run's sockets, for its owner alone
//   lock           held while a fleet, or a learner alone, runs here
//   logs/          ROLE-INDEX.INCARNATION.log, the output of each process
//
// The roles add metrics, checkpoints and videos.
//
// While the object lives, no process can open the same folder. Once
// constructed, the object never waits for the disk; a full or stalled disk
// loses at most the newest state.yaml, with a warning.
//
// Thread-safety: one thread at a time.
class RunFolder {
 public:
  // Starts a new run in run.dir, or in runs/NAME-TIMESTAMP below the working
  // folder (UTC; with -2, -3 ... if it exists). Takes a folder over in which an
  // earlier call was cut short, so that it has no state.yaml. Throws IoError if
  // any other folder is not empty, is in use or cannot be written.
  static RunFolder Create(const RunSection& run,
                          const std::string& resolved_yaml);
  // Resumes an earlier run, with the configuration `resolved_yaml` or, if this
  // is empty, the run's own. config.yaml keeps the run's own until
  // AdoptConfig(). Throws IoError if the folder holds no run or is in use, and
  // ConfigError if its state cannot be read.
  static RunFolder Resume(const std::filesystem::path& path,
                          const std::string& resolved_yaml = "");
  // Records that the run in `path` is complete. Throws IoError if it is in use,
  // and ConfigError if its state cannot be read.
  static void Complete(const std::filesystem::path& path);
  // The folder of the run that `given` names: the folder itself, or a file or
  // folder in it. Returns `given` if there is none.
  static std::filesystem::path Find(const std::filesystem::path& given);
  // Locks the folder for a learner that no fleet has started. Throws IoError,
  // with the owner's host and process, while a fleet or another learner holds
  // the lock.
  static FileLock Lock(const std::filesystem::path& path);
  // The configuration file of the run in `path`. Throws IoError if the folder
  // does not exist or holds no run.
  static std::filesystem::path ConfigFile(const std::filesystem::path& path);

  // The status of the run in `path`; std::nullopt if no run was started there.
  // A run stays kRunning if its fleet was killed. Throws ConfigError if its
  // state cannot be read.
  static std::optional<RunStatus> StatusOf(const std::filesystem::path& path);
  // Whether hosts have nothing to wait for: the run in `path` is complete, has
  // failed, or was stopped for good. Throws as StatusOf().
  static bool IsOver(const std::filesystem::path& path);

  ~RunFolder();
  RunFolder(RunFolder&& other) noexcept;
  RunFolder& operator=(RunFolder&&) = delete;

  // Absolute.
  const std::filesystem::path& path() const { return path_; }
  // The configuration of this start, for the roles.
  const std::filesystem::path& config_file() const { return config_file_; }
  // Replaces the configuration of this start. Throws IoError.
  void SetConfig(const std::string& resolved_yaml);
  // As SetConfig(), for a run under way: the resumed run has it. Does not wait
  // for the disk, and logs its problem.
  void ChangeConfig(const std::string& resolved_yaml);
  // Renames it to config.yaml. Call it once every role has started with it:
  // only then is it known to fit the run's checkpoints. Logs a disk problem.
  void AdoptConfig();
  // Writes status.json; skipped while the disk is busy with another file.
  void SetReport(std::string json);
  // Writes the last report, after all pending writes.
  void SetLastReport(std::string json);
  static std::filesystem::path ReportFile(const std::filesystem::path& path);
  // The process (a fleet, or a learner alone) that holds or last held the lock
  // of `path`: "host12/4711". It may have ended. Throws IoError.
  static std::string LastOwner(const std::filesystem::path& path);
  // Whether process `pid` of this host holds the lock of `path`.
  static bool IsOwner(const std::filesystem::path& path, pid_t pid);
  // The file of the run's key pair, created if absent. A resumed run keeps its
  // pair. Throws IoError.
  std::filesystem::path MakeKey() const;
  // The key pair file of the run in `path`; empty: the run has no key.
  static std::filesystem::path KeyFile(const std::filesystem::path& path);
  std::filesystem::path LogFile(const RoleId& id, uint32_t incarnation) const;

  // Returns the number of a role's next process; the first process of the whole
  // run has number 1.
  uint32_t NextIncarnation(const RoleId& id);
  // Writes the numbers given since the last call, if any, into the state: one
  // write for all processes that start together.
  void KeepIncarnations();
  // Number of starts of the run, and its status before this start: kRunning for
  // a new run, or if the previous fleet was killed.
  int64_t num_starts() const { return num_starts_; }
  RunStatus previous_status() const { return previous_status_; }
  // kRunning until SetStatus().
  RunStatus status() const { return status_; }
  // `is_final`: a run that was stopped is not to go on by itself.
  void SetStatus(RunStatus status, bool is_final = false);
  // Sets the status that the run had before this start, for a start that has
  // failed before the run went on; kFailed if that was kRunning.
  void RestoreStatus();

  // Waits until the state is written, at most for `timeout`; logs an error if
  // it is not.
  void AwaitDisk(Clock::Duration timeout);
  // Writes files of the run without delaying the caller.
  DiskQueue* disk() { return disk_.get(); }
  // Total time that the disk has delayed these files, seconds.
  double DiskWaitSeconds() const { return disk_->WaitSeconds(); }

 private:
  // Takes the lock.
  explicit RunFolder(const std::filesystem::path& path);
  // Goes on with the state that the folder has.
  void ReadState();
  void BeginStart(const std::string& name, int64_t seed);
  std::string StateText() const;
  // Writes the state on the disk thread.
  void PostState();
  void PostFile(const std::filesystem::path& path, std::string text);
  // Raises the incarnations to the numbers found in the names of log files; the
  // state may lack them after a full disk.
  void CountLogs();

  std::filesystem::path path_;
  std::filesystem::path config_file_;
  FileLock lock_;
  RunStatus status_ = RunStatus::kRunning;
  bool is_final_ = false;
  RunStatus previous_status_ = RunStatus::kRunning;
  bool was_final_ = false;  // is_final_ before this start
  int64_t num_starts_ = 0;
  bool is_adopted_ = false;     // AdoptConfig()
  std::string changed_config_;  // by ChangeConfig(); empty: none
  std::map<std::string, uint32_t> incarnations_;  // by "actor-3"
  bool has_new_incarnations_ = false;             // KeepIncarnations()
  std::unique_ptr<DiskQueue> disk_;
};

// The last `max_lines` lines with a letter or digit of a file, each after
// `indent`, from its last 8 KiB; "" if it cannot be read or has none.
std::string LogTail(const std::filesystem::path& path, int max_lines,
                    const std::string& indent);

}  // namespace replicant::fleet
