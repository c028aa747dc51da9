#include "fleet/run_folder.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <ctime>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/config/load.h"
#include "base/config/scalar.h"
#include "base/config/yaml_parser.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/rpc/curve.h"
#include "fleet/version.h"

namespace replicant::fleet {
namespace {

constexpr const char* kLockName = "lock";
constexpr const char* kInUse = "another fleet or learner is running in it";
constexpr const char* kConfigName = "config.yaml";
constexpr const char* kKeyName = "run.key";
constexpr const char* kNewConfigName = "config.new.yaml";
constexpr const char* kRunName = "run.yaml";
constexpr const char* kStateName = "state.yaml";
constexpr const char* kReportName = "status.json";
constexpr const char* kLogsName = "logs";

// state.yaml; StateText() writes the same keys.
struct IncarnationSection {
  int64_t last = 1;

  static IncarnationSection Read(config::Reader& reader) {
    IncarnationSection c;
    reader.Field("last", &c.last, {1, UINT32_MAX},
                 "number of processes so far");
    return c;
  }
};
struct StateFile {
  RunStatus status = RunStatus::kRunning;
  bool is_final = false;
  int64_t starts = 1;
  std::map<std::string, IncarnationSection> roles;

  static StateFile Read(config::Reader& reader) {
    StateFile c;
    reader.Field("status", &c.status,
                 {{"running", RunStatus::kRunning},
                  {"complete", RunStatus::kComplete},
                  {"stopped", RunStatus::kStopped},
                  {"failed", RunStatus::kFailed}},
                 "status of the run");
    reader.Field("final", &c.is_final, "whether a stopped run is over");
    reader.Field("starts", &c.starts, {1, INT64_MAX}, "number of starts");
    reader.Sections("roles", &c.roles, {0, 100'000}, "roles by name");
    return c;
  }
};

StateFile LoadState(const std::filesystem::path& file) {
  return config::Load<StateFile>(config::Document::FromFile(file)).config;
}

std::string UtcTime(const char* format) {
  const std::time_t now = std::time(nullptr);
  return fmt::format(fmt::runtime(format), fmt::gmtime(now));
}

std::filesystem::path NewFolder(const RunSection& run) {
  if (!run.dir.empty()) return run.dir;
  const auto base = std::filesystem::path("runs") /
                    fmt::format("{}-{}", run.name, UtcTime("{:%Y%m%d-%H%M%S}"));
  std::filesystem::path path = base;
  for (int i = 2; std::filesystem::exists(path); ++i) {
    path = fmt::format("{}-{}", base.string(), i);
  }
  return path;
}

// Whether the file is one that FileLock writes: empty, or "HOST/PID".
bool IsLock(const std::filesystem::path& file) {
  const std::string text = ReadFile(file, /*max_size_bytes=*/4096);
  const size_t slash = text.rfind('/');
  return text.empty() ||
         (slash != std::string::npos && slash + 1 < text.size() &&
          text.find_first_not_of("0123456789\n", slash + 1) ==
              std::string::npos);
}

// Whether Create() makes the file or folder before state.yaml, its last file.
bool IsMadeBeforeState(const std::filesystem::path& path) {
  const std::string name = path.filename();
  if (name == kLogsName) return std::filesystem::is_empty(path);
  if (name == kConfigName || name == kRunName) return true;
  for (const char* file : {kConfigName, kRunName, kStateName}) {
    // a temporary file of AtomicWriteFile()
    if (name.starts_with(std::string(file) + ".tmp-")) return true;
  }
  return false;
}

// Whether a folder holds more than the lock, and beside a lock more than what a
// fleet leaves that has died in Create().
bool IsInUse(const std::filesystem::path& path) {
  bool has_lock = false;
  bool has_others = false;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (entry.path().filename() == kLockName && IsLock(entry.path())) {
      has_lock = true;
    } else if (IsMadeBeforeState(entry.path())) {
      has_others = true;
    } else {
      return true;
    }
  }
  return has_others && !has_lock;
}

[[noreturn]] void ThrowNoRun(const std::filesystem::path& path,
                             const char* missing) {
  throw IoError(
      fmt::format("run folder {}: no run to resume, because it has no {}",
                  path.string(), missing));
}

// Runs `work` and adds the run folder to the message of an IoError.
template <typename Work>
void ForNewFolder(const std::filesystem::path& path, const Work& work) {
  try {
    work();
  } catch (const IoError& e) {
    throw IoError(
        fmt::format("run folder {}: {}; hint: --set run.dir=FOLDER puts the "
                    "run somewhere else",
                    path.string(), e.what()));
  }
}

}  // namespace

std::string ToString(RunStatus status) {
  switch (status) {
    case RunStatus::kRunning:
      return "running";
    case RunStatus::kComplete:
      return "complete";
    case RunStatus::kStopped:
      return "stopped";
    case RunStatus::kFailed:
      return "failed";
  }
  return "unknown";
}

RunFolder::RunFolder(const std::filesystem::path& path)
    : path_(std::filesystem::absolute(path)),
      config_file_(path_ / kConfigName),
      lock_(path_ / kLockName, kInUse),
      disk_(std::make_unique<DiskQueue>()) {}

RunFolder::~RunFolder() {
  if (disk_ != nullptr) KeepIncarnations();
  disk_.reset();
  if (config_file_.filename() == kNewConfigName) {
    std::error_code ignored;
    std::filesystem::remove(config_file_, ignored);
  }
}

RunFolder::RunFolder(RunFolder&& other) noexcept
    : path_(std::move(other.path_)),
      config_file_(std::exchange(other.config_file_, {})),
      lock_(std::move(other.lock_)),
      status_(other.status_),
      previous_status_(other.previous_status_),
      was_final_(other.was_final_),
      num_starts_(other.num_starts_),
      incarnations_(std::move(other.incarnations_)),
      has_new_incarnations_(other.has_new_incarnations_),
      disk_(std::move(other.disk_)) {}

RunFolder RunFolder::Create(const RunSection& run,
                            const std::string& resolved_yaml) {
  const std::filesystem::path path = NewFolder(run);
  std::optional<RunFolder> folder;
  ForNewFolder(path, [&] {
    const auto check_new = [&path] {
      if (!IsInUse(path)) return;
      throw IoError(
          "it is not empty; hint: fleet --resume FOLDER resumes a run");
    };
    MakeFolders(path);
    // check before changing a file that is not a run's, and once no other can
    // start here
    const std::filesystem::path lock = path / kLockName;
    if (!std::filesystem::exists(lock) || !IsLock(lock)) check_new();
    folder.emplace(RunFolder(path));
    check_new();
    RemoveStaleTemporaries(path);
    AtomicWriteFile(path / kConfigName, resolved_yaml);
    folder->BeginStart(run.name, run.seed);
  });
  return std::move(*folder);
}

std::filesystem::path RunFolder::Find(const std::filesystem::path& given) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::canonical(given, error);
  // RUN/checkpoints/step-N/variables.safetensors lies deepest
  for (int depth = 0; depth < 4 && !error; ++depth) {
    if (std::filesystem::exists(path / kConfigName)) {
      return depth == 0 ? given : path;
    }
    path = path.parent_path();
  }
  return given;
}

FileLock RunFolder::Lock(const std::filesystem::path& path) {
  return {path / kLockName,
          fmt::format("run folder {}: {}", path.string(), kInUse)};
}

std::filesystem::path RunFolder::ConfigFile(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) {
    throw IoError(fmt::format("run folder {}: no such folder", path.string()));
  }
  for (const char* name : {kConfigName, kStateName}) {
    if (!std::filesystem::exists(path / name)) ThrowNoRun(path, name);
  }
  return path / kConfigName;
}

std::optional<RunStatus> RunFolder::StatusOf(
    const std::filesystem::path& path) {
  const std::filesystem::path file = path / kStateName;
  if (!std::filesystem::exists(file)) return std::nullopt;
  return LoadState(file).status;
}

bool RunFolder::IsOver(const std::filesystem::path& path) {
  const std::filesystem::path file = path / kStateName;
  if (!std::filesystem::exists(file)) return false;
  const StateFile state = LoadState(file);
  return state.status == RunStatus::kComplete ||
         state.status == RunStatus::kFailed || state.is_final;
}

RunFolder RunFolder::Resume(const std::filesystem::path& path,
                            const std::string& resolved_yaml) {
  ConfigFile(path);
  try {
    // find now what would make the start fail later
    if (const auto key = KeyFile(path); !key.empty()) {
      static_cast<void>(rpc::ReadKeyPair(key));
    }
    RunFolder folder(path);
    RemoveStaleTemporaries(folder.path_);
    folder.ReadState();
    if (!resolved_yaml.empty() &&
        resolved_yaml !=
            ReadFile(folder.config_file_, config::YamlLimits::kFileBytes)) {
      folder.config_file_ = folder.path_ / kNewConfigName;
      AtomicWriteFile(folder.config_file_, resolved_yaml);
    } else {
      // left by a fleet that was killed
      std::error_code ignored;
      std::filesystem::remove(folder.path_ / kNewConfigName, ignored);
    }
    folder.BeginStart("", 0);
    return folder;
  } catch (const IoError& e) {
    throw IoError(fmt::format("run folder {}: {}", path.string(), e.what()));
  }
}

void RunFolder::Complete(const std::filesystem::path& path) {
  try {
    RunFolder folder(path);
    folder.ReadState();
    folder.SetStatus(RunStatus::kComplete);
  } catch (const IoError& e) {
    throw IoError(fmt::format("run folder {}: {}", path.string(), e.what()));
  }
}

void RunFolder::ReadState() {
  const StateFile state = LoadState(path_ / kStateName);
  num_starts_ = state.starts;
  for (const auto& [role, section] : state.roles) {
    incarnations_[role] = static_cast<uint32_t>(section.last);
  }
  CountLogs();
  previous_status_ = state.status;
  was_final_ = state.is_final;
}

void RunFolder::SetConfig(const std::string& resolved_yaml) {
  AtomicWriteFile(config_file_, resolved_yaml);
}

void RunFolder::ChangeConfig(const std::string& resolved_yaml) {
  changed_config_ = resolved_yaml;
  PostFile(config_file_, resolved_yaml);
  if (is_adopted_) AdoptConfig();
}

void RunFolder::AdoptConfig() {
  is_adopted_ = true;
  const std::filesystem::path adopted = path_ / kConfigName;
  if (config_file_ == adopted) return;
  // the roles go on reading the other file when they start again
  PostFile(adopted, changed_config_.empty()
                        ? ReadFile(config_file_, config::YamlLimits::kFileBytes)
                        : changed_config_);
}

void RunFolder::BeginStart(const std::string& name, int64_t seed) {
  MakeFolders(path_ / kLogsName);
  ++num_starts_;
  const std::filesystem::path file = path_ / kRunName;
  std::string text;
  if (num_starts_ == 1) {
    text = fmt::format("name: {}\nseed: {}\nstarts:\n",
                       config::TextToYaml(name), seed);
  } else {
    text = ReadFile(file, config::YamlLimits::kFileBytes);
  }
  text += fmt::format("  - time: {}\n    version: {}\n    process: {}\n",
                      UtcTime("{:%Y-%m-%dT%H:%M:%SZ}"),
                      config::TextToYaml(Version()),
                      config::TextToYaml(HostAndPid()));
  AtomicWriteFile(file, text);
  AtomicWriteFile(path_ / kStateName, StateText());
}

std::string RunFolder::StateText() const {
  std::string text =
      fmt::format("status: {}\n{}starts: {}\n", ToString(status_),
                  is_final_ ? "final: true\n" : "", num_starts_);
  if (!incarnations_.empty()) text += "roles:\n";
  for (const auto& [role, last] : incarnations_) {
    text += fmt::format("  {}: {{last: {}}}\n", role, last);
  }
  return text;
}

void RunFolder::PostState() { PostFile(path_ / kStateName, StateText()); }

void RunFolder::PostFile(const std::filesystem::path& path, std::string text) {
  disk_->Post([path, text = std::move(text)] {
    try {
      AtomicWriteFile(path, text);
    } catch (const IoError& e) {
      spdlog::warn("{} was not written: {}", path.string(), e.what());
    }
  });
}

void RunFolder::SetReport(std::string json) {
  if (disk_->WaitSeconds() > 0.0) return;
  SetLastReport(std::move(json));
}

void RunFolder::SetLastReport(std::string json) {
  PostFile(path_ / kReportName, std::move(json));
}

std::filesystem::path RunFolder::ReportFile(const std::filesystem::path& path) {
  return path / kReportName;
}

std::string RunFolder::LastOwner(const std::filesystem::path& path) {
  return ReadFile(path / kLockName, /*max_size_bytes=*/4096);
}

bool RunFolder::IsOwner(const std::filesystem::path& path, pid_t pid) {
  const std::filesystem::path files = fmt::format("/proc/{}/fd", pid);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(files, error)) {
    if (std::filesystem::equivalent(entry.path(), path / kLockName, error)) {
      return true;
    }
  }
  return false;
}

void RunFolder::AwaitDisk(Clock::Duration timeout) {
  KeepIncarnations();
  if (disk_->Await(timeout)) return;
  spdlog::error("{}: not written {:.0f} s after the end: the disk has stalled",
                (path_ / kStateName).string(), ToSeconds(timeout));
}

void RunFolder::CountLogs() {
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(path_ / kLogsName, error)) {
    // "actor-3.2.log"
    const std::filesystem::path stem = entry.path().stem();
    const std::string number = stem.extension();
    uint32_t incarnation = 0;
    const char* const end = number.data() + number.size();
    // other logs belong to hosts, and their names may be anything
    if (entry.path().extension() != ".log" || number.empty() ||
        !IsRoleName(stem.stem().string()) ||
        std::from_chars(number.data() + 1, end, incarnation).ptr != end) {
      continue;
    }
    uint32_t& last = incarnations_[stem.stem()];
    last = std::max(last, incarnation);
  }
}

std::filesystem::path RunFolder::MakeKey() const {
  std::filesystem::path file = path_ / kKeyName;
  if (KeyFile(path_).empty()) {
    rpc::WriteKeyPair(file, rpc::GenerateCurveKeyPair());
  } else {
    // a broken one is a problem before the roles start
    static_cast<void>(rpc::ReadKeyPair(file));
  }
  return file;
}

std::filesystem::path RunFolder::KeyFile(const std::filesystem::path& path) {
  const std::filesystem::path file = std::filesystem::absolute(path) / kKeyName;
  std::error_code error;
  return std::filesystem::exists(file, error) ? file : "";
}

std::filesystem::path RunFolder::LogFile(const RoleId& id,
                                         uint32_t incarnation) const {
  return path_ / kLogsName /
         fmt::format("{}.{}.log", id.ToString(), incarnation);
}

uint32_t RunFolder::NextIncarnation(const RoleId& id) {
  has_new_incarnations_ = true;
  return ++incarnations_[id.ToString()];
}

void RunFolder::KeepIncarnations() {
  if (std::exchange(has_new_incarnations_, false)) PostState();
}

void RunFolder::SetStatus(RunStatus status, bool is_final) {
  status_ = status;
  is_final_ = is_final && status == RunStatus::kStopped;
  PostState();
}

void RunFolder::RestoreStatus() {
  const bool had_ended = previous_status_ != RunStatus::kRunning;
  SetStatus(had_ended ? previous_status_ : RunStatus::kFailed, was_final_);
}

std::string LogTail(const std::filesystem::path& path, int max_lines,
                    const std::string& indent) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  constexpr std::streamoff kMaxBytes = 8192;
  const std::streamoff size = file.tellg();
  const std::streamoff begin = std::max<std::streamoff>(0, size - kMaxBytes);
  file.seekg(begin);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  // the first line may be cut off at its front
  if (begin > 0 && lines.size() > 1) lines.erase(lines.begin());
  // mpirun draws lines around what it says
  std::erase_if(lines, [](const std::string& line) {
    return std::ranges::none_of(
        line, [](unsigned char c) { return std::isalnum(c) != 0; });
  });
  const size_t count =
      std::min(lines.size(), static_cast<size_t>(std::max(max_lines, 0)));
  std::string text;
  for (size_t i = lines.size() - count; i < lines.size(); ++i) {
    text += (text.empty() ? "" : "\n") + indent + lines[i];
  }
  return text;
}

}  // namespace replicant::fleet
