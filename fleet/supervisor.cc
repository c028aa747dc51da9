#include "fleet/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <limits>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/exit_codes.h"
#include "base/rng.h"
#include "fleet/log_follower.h"
#include "fleet/protocol/heartbeat_sender.h"

namespace replicant::fleet {
namespace {

// Lines of a role's log in a message.
constexpr int kLogTailLines = 10;

void CheckNoneTwice(const std::vector<RoleSpec>& specs) {
  if (specs.empty()) throw InvalidArgument("fleet: no role is given");
  std::set<RoleId> ids;
  for (const RoleSpec& spec : specs) {
    if (!ids.insert(spec.id).second) {
      throw InvalidArgument(
          fmt::format("fleet: {} is given twice", spec.id.ToString()));
    }
  }
}

}  // namespace

Supervisor::Supervisor(Options options, std::vector<RoleSpec> specs,
                       RunFolder* folder, Backend* backend,
                       HeartbeatMonitor* monitor, Clock* clock)
    : options_(std::move(options)),
      folder_(*folder),
      backend_(*backend),
      monitor_(*monitor),
      clock_(*clock),
      now_(clock->Now()),
      watching_since_(now_) {
  CheckNoneTwice(specs);
  for (RoleSpec& spec : specs) AddMember(std::move(spec));
  FindGroup();
}

void Supervisor::CheckSpec(const RoleSpec& spec) {
  if (!IsRoleName(spec.id.role)) {
    throw InvalidArgument(
        fmt::format("fleet: role '{}' is not of the form [a-z0-9_-]{{1,32}}",
                    spec.id.role));
  }
  if (spec.command.empty()) {
    throw InvalidArgument(
        fmt::format("fleet: {} has no command", spec.id.ToString()));
  }
}

void Supervisor::AddMember(RoleSpec spec) {
  CheckSpec(spec);
  const RandomStream random(options_.seed,
                            "fleet/backoff/" + spec.id.ToString());
  RestartTracker tracker(spec.restart, random);
  members_.push_back({std::move(spec), std::move(tracker)});
  by_id_[members_.back().spec.id] = &members_.back();
}

void Supervisor::Step() {
  const Clock::TimePoint now = clock_.Now();
  const auto timeout = FromSeconds(options_.config.heartbeat_timeout_s);
  if (now - now_ > timeout / 2) watching_since_ = now;
  now_ = now;
  TakeHeartbeats();
  for (Member& member : members_) CheckExit(member);
  if (!IsStopping()) {
    for (Member& member : members_) CheckHeartbeat(member);
    for (Member& member : members_) KillLateMember(member);
    StepGroup();
    StartDue();
  }
  // a stop may have begun above
  if (IsStopping()) AdvanceStop();
  folder_.KeepIncarnations();
}

void Supervisor::CheckExit(Member& member) {
  if (member.process == nullptr) return;
  std::optional<ExitStatus> status = member.process->Poll();
  // the run ends without waiting for a host that is cut off: its agent ends the
  // role
  if (!status && IsStopping() && member.phase == RolePhase::kKilled &&
      !member.process->IsReachable()) {
    status = ExitStatus{-1, SIGKILL};
  }
  if (!status) return;
  const bool is_lost = member.process->IsLost();
  member.process.reset();
  monitor_.NoteEnd(member.spec.id);
  // its last heartbeat may have come just before its end
  const auto last = monitor_.Latest(member.spec.id);
  if (last && last->beat.state != RoleState::kStarting) member.has_run = true;
  const std::string name = member.spec.id.ToString();
  const bool was_killed = member.phase == RolePhase::kKilled;
  if (IsStopping()) {
    // a process that does not handle SIGTERM yet has nothing to save
    const bool is_good =
        status->ok() || is_lost ||
        (member.phase == RolePhase::kStarting && status->signal == SIGTERM);
    member.phase = RolePhase::kEnded;
    if (is_good) {
      spdlog::info("{} has ended", name);
    } else if (!is_stopping_now_) {
      result_->problems.push_back(
          fmt::format("{}: {}; see {}", name,
                      was_killed ? member.killed_because
                      : status->code == kExitUnsaved
                          ? ReasonOf(member)
                          : status->ToString() + " while the run was stopped",
                      LogOf(member)));
      spdlog::warn("{}", result_->problems.back());
    }
    return;
  }
  if (member.drain_deadline) {
    // it may be wanted again by now
    member.phase = member.is_wanted ? RolePhase::kPending : RolePhase::kEnded;
    member.drain_deadline.reset();
    spdlog::info("{} has ended", name);
    return;
  }
  if (member.spec.group_arguments) return EndMember(member, *status, is_lost);
  if (IsDoneWith(status->code) && !was_killed &&
      member.spec.on_success != RoleSpec::OnSuccess::kRestart) {
    member.phase = RolePhase::kEnded;
    spdlog::info("{} is done", name);
    if (member.spec.on_success == RoleSpec::OnSuccess::kCompletesRun) {
      Complete(member, *status);
    }
    return;
  }
  if (is_lost) {
    member.phase = RolePhase::kPending;
    return;
  }
  if (was_killed) return HandleFailure(member, member.killed_because);
  // the last line of a process that ended by itself says why
  const std::string last_line =
      status->signal == 0
          ? LogTail(LogOf(member), /*max_lines=*/1, /*indent=*/"")
          : "";
  HandleFailure(member, status->ToString(), last_line,
                WhyNoRestart(member, *status));
}

std::string Supervisor::WhyNoRestart(Member& member, const ExitStatus& status) {
  const ExitStatus before = std::exchange(member.last_exit, status);
  if (IsRefused(member)) {
    return "a restart cannot help, change the configuration";
  }
  if (status.code == kExitDevice && !member.has_run) {
    return "a restart cannot help, another host may have the device";
  }
  const bool is_again = status.code == kExitData && before.code == kExitData;
  return is_again ? "another restart would meet the same data" : "";
}

void Supervisor::Complete(const Member& member, const ExitStatus& status) {
  const std::string why = ReasonOf(member);
  const std::string failure = WhyNothingWorked();
  if (failure.empty()) {
    BeginStop(RunStatus::kComplete, member.spec.id.ToString() +
                                        " has completed the run" +
                                        (why.empty() ? "" : ": " + why));
  } else {
    BeginStop(RunStatus::kFailed, failure);
  }
  result_->is_unsaved = status.code == kExitUnsaved;
}

std::string Supervisor::WhyNothingWorked() const {
  const Member* last = nullptr;
  for (const Member& member : members_) {
    if (member.spec.work_counter.empty()) continue;
    if (member.has_worked || member.num_failures < 2) return "";
    if (last == nullptr || member.num_failures > last->num_failures) {
      last = &member;
    }
  }
  if (last == nullptr) return "";
  const std::string log =
      folder_.LogFile(last->spec.id, last->failed_incarnation);
  const std::string tail = LogTail(log, kLogTailLines, /*indent=*/"  ");
  return fmt::format("{}: {} failures and no {}: {}; {} {}{}",
                     last->spec.id.ToString(), last->num_failures,
                     last->spec.work_counter, last->last_failure, log,
                     tail.empty() ? "is empty" : "ends with:\n", tail);
}

std::string Supervisor::ReasonOf(const Member& member) const {
  const auto last = monitor_.Latest(member.spec.id);
  const bool says_why = last && last->beat.state == RoleState::kDraining;
  return says_why ? last->beat.reason : "";
}

void Supervisor::TakeHeartbeats() {
  for (HeartbeatMonitor::Entry& entry : monitor_.NewSince(&num_heard_)) {
    const auto found = by_id_.find(entry.beat.id);
    if (found == by_id_.end()) continue;
    Member& member = *found->second;
    const auto work = entry.beat.numbers.find(member.spec.work_counter);
    member.has_worked |=
        work != entry.beat.numbers.end() && work->second.value > 0.0;
    member.latest = std::move(entry);
  }
}

void Supervisor::CheckHeartbeat(Member& member) {
  if (member.phase != RolePhase::kStarting &&
      member.phase != RolePhase::kReady) {
    return;
  }
  if (!member.process->IsReachable()) {
    member.heard_of_at = member.progressed_at = now_;
    return;
  }
  const auto& latest = member.latest;
  if (member.phase == RolePhase::kStarting) {
    if (latest && latest->beat.state != RoleState::kStarting) {
      member.phase = RolePhase::kReady;
      member.has_run = true;
      spdlog::info("{} runs", member.spec.id.ToString());
    } else if (latest && latest->beat.numbers != member.progress) {
      member.progressed_at = now_;
      member.progress = latest->beat.numbers;
    } else if (now_ - member.progressed_at >
               FromSeconds(options_.config.start_timeout_s)) {
      const std::string reason = latest ? latest->beat.reason : "";
      Kill(member,
           fmt::format(
               "not running {:.3g} s after {} (fleet.start_timeout_s){}{}",
               options_.config.start_timeout_s,
               member.progress.empty() ? "its start" : "its last progress",
               reason.empty() ? "" : ", but starting: ", reason));
      return;
    }
  }
  if (!latest) return;
  const auto silence =
      now_ - std::max({latest->time, watching_since_, member.heard_of_at});
  if (silence > FromSeconds(options_.config.heartbeat_timeout_s)) {
    Kill(member,
         fmt::format("no heartbeat for {:.3g} s (fleet.heartbeat_timeout_s)",
                     ToSeconds(silence)));
  }
}

int Supervisor::OpenStage() const {
  int stage = std::numeric_limits<int>::max();
  for (const Member& m : members_) {
    if (m.phase != RolePhase::kReady && m.phase != RolePhase::kEnded &&
        m.phase != RolePhase::kLeftOut && !m.spec.is_elastic) {
      stage = std::min(stage, m.spec.start_stage);
    }
  }
  return stage;
}

void Supervisor::StartDue() {
  const int open_stage = OpenStage();
  for (Member& member : members_) {
    if (member.spec.group_arguments) continue;  // StartGroup() does
    const bool waits = member.phase == RolePhase::kBackingOff ||
                       member.phase == RolePhase::kLeftOut;
    const bool is_due = member.phase == RolePhase::kPending
                            ? member.spec.start_stage <= open_stage
                            : waits && now_ >= member.start_at;
    if (is_due && backend_.HasRoom(member.spec)) Start(member);
    if (IsStopping()) return;
  }
}

void Supervisor::Start(Member& member) {
  const RoleSpec& spec = member.spec;
  const bool is_first = member.incarnation == 0 && !member.is_added;
  member.incarnation = folder_.NextIncarnation(spec.id);
  HeartbeatSenderOptions heartbeat;
  heartbeat.endpoint = options_.heartbeat_endpoint;
  heartbeat.key_file = options_.key_file;
  heartbeat.id = spec.id;
  heartbeat.incarnation = member.incarnation;

  ProcessOptions process;
  process.command = spec.command;
  process.command.insert(process.command.end(), spec.arguments.begin(),
                         spec.arguments.end());
  if (member.incarnation > 1) {
    process.command.insert(process.command.end(), spec.resume_arguments.begin(),
                           spec.resume_arguments.end());
  }
  if (!member.has_run) {
    process.command.insert(process.command.end(), spec.first_arguments.begin(),
                           spec.first_arguments.end());
  }
  process.command.insert(process.command.end(), member.group_arguments.begin(),
                         member.group_arguments.end());
  process.environment = spec.environment;
  for (std::string& variable : heartbeat.ToEnvironment()) {
    process.environment.push_back(std::move(variable));
  }
  process.stdout_file = MakeLog(member);
  process.stderr_file = process.stdout_file;
  process.cpus = spec.cpus;
  process.niceness_levels = spec.niceness_levels;

  monitor_.Expect(spec.id, member.incarnation);
  member.latest.reset();
  member.progressed_at = now_;
  member.progress.clear();
  try {
    member.process = backend_.Start(spec, member.incarnation, process);
  } catch (const IoError& e) {
    // a program that has never run will not run at the next attempt either
    if (is_first && !spec.is_optional) {
      member.phase = RolePhase::kEnded;
      BeginStop(RunStatus::kFailed, fmt::format("{} cannot be started: {}",
                                                spec.id.ToString(), e.what()));
      result_->is_mistake = dynamic_cast<const ExecuteError*>(&e) != nullptr;
    } else {
      HandleFailure(member, e.what());
    }
    return;
  }
  if (member.process == nullptr) {
    // its host has left since HasRoom(): it waits for another one
    member.phase = RolePhase::kPending;
    return;
  }
  member.phase = RolePhase::kStarting;
  spdlog::info("{} starts{}", spec.id.ToString(),
               member.incarnation == 1
                   ? ""
                   : fmt::format(" (incarnation {})", member.incarnation));
}

std::filesystem::path Supervisor::MakeLog(const Member& member) const {
  const std::string path = LogOf(member);
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd >= 0) {
    ::close(fd);
    return path;
  }
  spdlog::warn("{}: no log file: {}; its output goes to the fleet's log",
               member.spec.id.ToString(),
               IoError::FromErrno("open", path, errno).what());
  return "";
}

void Supervisor::Kill(Member& member, std::string why) {
  spdlog::warn("{}: {}; killing it", member.spec.id.ToString(), why);
  member.phase = RolePhase::kKilled;
  member.killed_because = std::move(why);
  member.process->Signal(SIGKILL);
}

void Supervisor::HandleFailure(Member& member, const std::string& why,
                               const std::string& last_line,
                               const std::string& why_no_restart) {
  const std::string name = member.spec.id.ToString();
  const RestartPolicy& policy = member.tracker.policy();
  ++member.num_failures;
  member.last_failure = why;
  member.failed_incarnation = member.incarnation;
  const std::optional<Clock::Duration> pause = member.tracker.Failed(now_);
  if (pause && why_no_restart.empty()) {
    member.phase = RolePhase::kBackingOff;
    member.start_at = now_ + *pause;
    spdlog::warn(
        "{}: {}{}; restart in {:.2g} s ({} of {} restarts in {:g} s); see {}",
        name, why,
        last_line.empty() ? ""
                          : fmt::format(" ({})", MessageOfLogLine(last_line)),
        ToSeconds(*pause), member.tracker.num_recent(), policy.budget,
        policy.window_s, LogOf(member));
    return;
  }
  if (why_no_restart.empty() && LeaveOut(member, why)) return;
  member.phase = RolePhase::kEnded;
  const std::string tail =
      LogTail(LogOf(member), kLogTailLines, /*indent=*/"  ");
  const std::string end =
      why_no_restart.empty()
          ? fmt::format(", after all {} restarts allowed in {:g} s",
                        policy.budget, policy.window_s)
          : "; " + why_no_restart;
  const std::string message =
      fmt::format("{}: {}{}; {} {}{}", name, why, end, LogOf(member),
                  tail.empty() ? "is empty" : "ends with:\n", tail);
  if (member.spec.is_optional) {
    spdlog::warn("the run continues without {}", message);
  } else {
    BeginStop(RunStatus::kFailed, message);
    result_->is_mistake = IsRefused(member);
  }
}

void Supervisor::RequestStop(const std::string& why) {
  if (!IsStopping()) BeginStop(RunStatus::kStopped, why);
}

void Supervisor::BeginStop(RunStatus status, std::string message) {
  if (status == RunStatus::kFailed) {
    spdlog::error("{}", message);
  } else {
    spdlog::info("{}; draining", message);
  }
  result_ = RunResult{status, std::move(message), {}};
  for (Member& member : members_) {
    if (member.process == nullptr) member.phase = RolePhase::kEnded;
  }
}

void Supervisor::StopNow(const std::string& why) {
  if (!IsStopping()) BeginStop(RunStatus::kStopped, why);
  is_stopping_now_ = true;
  result_->problems.push_back(why);
  for (Member& member : members_) {
    if (member.process != nullptr) Kill(member, why);
  }
}

bool Supervisor::HasStarted() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) {
    return m.has_run || m.spec.is_optional || m.spec.is_elastic ||
           m.phase == RolePhase::kLeftOut || !m.is_wanted;
  });
}

bool Supervisor::HaveAllAPlace() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& m) {
    return !m.spec.is_remote || !m.is_wanted || m.phase == RolePhase::kReady;
  });
}

bool Supervisor::IsFinished() const {
  return IsStopping() &&
         std::all_of(members_.begin(), members_.end(),
                     [](const Member& m) { return m.process == nullptr; });
}

RunResult Supervisor::result() const {
  return IsFinished() ? *result_ : RunResult{};
}

std::string Supervisor::LogOf(const Member& member) const {
  return folder_.LogFile(member.spec.id, member.incarnation);
}

std::vector<Supervisor::RoleView> Supervisor::Roles() const {
  std::vector<RoleView> views;
  views.reserve(members_.size());
  const int open_stage = OpenStage();
  for (const Member& member : members_) {
    RoleView view = {.id = member.spec.id,
                     .phase = member.phase,
                     .incarnation = member.incarnation,
                     .num_failures = member.num_failures,
                     .last_failure = member.last_failure,
                     .data_flow = member.spec.data_flow,
                     .is_remote = member.spec.is_remote,
                     .is_wanted = member.is_wanted};
    if (member.process != nullptr) view.host = member.process->host();
    view.has_no_room = member.phase == RolePhase::kPending &&
                       member.spec.is_remote &&
                       member.spec.start_stage <= open_stage;
    if (member.phase == RolePhase::kBackingOff) {
      view.backoff_s = std::max(0.0, ToSeconds(member.start_at - clock_.Now()));
    }
    views.push_back(std::move(view));
  }
  return views;
}

std::vector<int> Supervisor::ExitFds() const {
  std::vector<int> fds;
  for (const Member& member : members_) {
    if (member.process != nullptr && member.process->fd() >= 0) {
      fds.push_back(member.process->fd());
    }
  }
  return fds;
}

}  // namespace replicant::fleet
