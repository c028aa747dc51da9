#include "fleet/run_copy.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/file_lock.h"
#include "base/fs.h"
#include "fleet/cluster_config.h"
#include "fleet/run_folder.h"

namespace replicant::fleet {
namespace {

constexpr int kCopyLogLines = 3;
constexpr auto kLookInterval = std::chrono::seconds(1);

// The words of a command, split at blanks, with the folder in place of "{run}".
std::vector<std::string> CopyWords(const std::string& command,
                                   const std::filesystem::path& run) {
  std::vector<std::string> words;
  std::istringstream stream(command);
  for (std::string word; stream >> word;) {
    ReplaceAll("{run}", run.native(), &word);
    words.push_back(word);
  }
  return words;
}

}  // namespace

RunCopy::RunCopy(const std::string& command, const std::filesystem::path& run,
                 std::function<std::string()> find_newest, DiskQueue* disk)
    : words_(CopyWords(command, run)),
      find_newest_(std::move(find_newest)),
      log_(run / "logs" / "copy.log"),
      disk_(*disk) {}

std::string RunCopy::Look(Clock::TimePoint now) {
  MutexLock lock(found_->mutex);
  if (now >= next_look_ && !found_->is_looking) {
    next_look_ = now + kLookInterval;
    found_->is_looking = true;
    disk_.Post([found = found_, find_newest = find_newest_] {
      std::optional<std::string> newest;
      try {
        newest = find_newest();
      } catch (const std::exception&) {
        // a folder that cannot be read now: the next look tries again
      }
      MutexLock found_lock(found->mutex);
      if (newest) found->newest = std::move(*newest);
      found->is_looking = false;
    });
  }
  return found_->newest;
}

void RunCopy::Start() {
  try {
    process_ = std::make_unique<Process>(ProcessOptions{
        .command = words_, .stdout_file = log_, .stderr_file = log_});
  } catch (const IoError& error) {
    is_good_ = false;
    spdlog::warn("fleet.copy_command: {}", error.what());
  }
}

bool RunCopy::HasEnded(std::chrono::milliseconds timeout) {
  if (process_ == nullptr) return true;
  const std::optional<ExitStatus> status = process_->Wait(timeout);
  if (!status) return false;
  process_.reset();
  is_good_ = status->ok();
  if (!is_good_) {
    spdlog::warn("fleet.copy_command: {}; {} ends with:\n{}",
                 status->ToString(), log_.string(),
                 LogTail(log_, kCopyLogLines, /*indent=*/"  "));
  }
  return true;
}

void RunCopy::Step(Clock::TimePoint now) {
  if (words_.empty() || !HasEnded(std::chrono::milliseconds(0))) return;
  const std::string newest = Look(now);
  if (newest == copied_) return;
  copied_ = newest;
  Start();
}

bool RunCopy::Finish(Clock::Duration patience) {
  if (words_.empty()) return true;
  const Clock::TimePoint deadline = Clock::Real().Now() + patience;
  const auto await = [&] {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline - Clock::Real().Now());
    return HasEnded(std::max(left, std::chrono::milliseconds(0)));
  };
  if (await()) {
    Start();
    if (await()) return is_good_;
  }
  process_.reset();
  spdlog::warn("fleet.copy_command: not done {:.3g} s after the end of the run",
               ToSeconds(patience));
  return false;
}

bool FetchRun(const std::string& command, const std::filesystem::path& run) {
  // not in the folder, which the command may replace
  const std::filesystem::path folder_path =
      run.has_filename() ? run : run.parent_path();
  const std::filesystem::path marker = folder_path.string() + ".fetching";
  std::optional<FileLock> lock;
  std::string problem;
  try {
    MakeFolders(marker.parent_path());
    lock.emplace(FileLock::Await(marker.string() + ".lock"));
  } catch (const IoError& error) {
    problem = error.what();
  }
  // perhaps another launcher has brought it, while this one waited
  if (!std::filesystem::exists(marker) &&
      RunFolder::StatusOf(run).has_value()) {
    return true;
  }
  try {
    AtomicWriteFile(marker, "fleet.fetch_command has not brought all of it\n");
  } catch (const IoError& error) {
    problem = error.what();
  }
  if (!problem.empty()) {
    spdlog::warn(
        "a fetch that is cut short may look like a whole run, and a second "
        "launcher may fetch at the same time: {}; hint: give a run.dir whose "
        "parent can be written",
        problem);
  }
  const std::vector<std::string> words = CopyWords(command, run);
  const TemporaryFolder folder("replicant-fetch");
  const std::filesystem::path log = folder.path() / "log";
  const ExitStatus status =
      Process({.command = words, .stdout_file = log, .stderr_file = log})
          .Wait();
  if (!status.ok()) {
    throw IoError(fmt::format("fleet.fetch_command: {}; it ends with:\n{}",
                              status.ToString(),
                              LogTail(log, kCopyLogLines, /*indent=*/"  ")));
  }
  std::filesystem::remove(marker);
  return RunFolder::StatusOf(run).has_value();
}

}  // namespace replicant::fleet
