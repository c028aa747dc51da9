#include "programs/sweep/sweep.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/config/load.h"
#include "base/config/yaml_parser.h"
#include "base/error.h"
#include "base/file_lock.h"
#include "base/fs.h"
#include "base/metrics/format.h"
#include "base/process.h"
#include "evaluation/evaluation_log.h"
#include "fleet/run_folder.h"
#include "programs/run/check_resume.h"
#include "programs/run/learning_curve.h"
#include "programs/run/run_config.h"
#include "programs/sweep/sweep_config.h"

namespace replicant::programs {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using fleet::RunFolder;
using fleet::RunStatus;

constexpr auto kTrialPollInterval = std::chrono::milliseconds(200);
// between two looks at the evaluations
constexpr auto kJudgeInterval = std::chrono::seconds(2);

// Prints to stdout at once. Unlike fmt::print(), it does not throw if the
// reader has gone.
template <typename... Args>
void Print(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stdout);
  std::fflush(stdout);
}

// A field of a CSV file (RFC 4180).
std::string Quoted(const std::string& text) {
  std::string field;
  for (const char c : text) field.append(c == '"' ? 2 : 1, c);
  return "\"" + field + "\"";
}

// One run of the sweep, with its files.
struct Member {
  SweepRun run;
  std::string number;  // "007"
  fs::path folder, config_file, log;
  std::unique_ptr<Process> process;
  std::optional<RunStatus> status;  // none: not started yet

  // Tells why the median rule has stopped the run, if it has.
  fs::path verdict_file() const { return fs::path(folder) += ".stopped"; }
  bool has_verdict() const { return fs::exists(verdict_file()); }
  bool is_done() const {
    return status == RunStatus::kComplete || has_verdict();
  }
};

class Sweep {
 public:
  Sweep(const fs::path& file, const Registry& registry,
        const Commands& commands)
      : registry_(registry),
        commands_(commands),
        config_(
            config::Load<SweepConfig>(config::Document::FromFile(file)).config),
        folder_(fs::absolute(config_.folder.empty()
                                 ? fs::path("sweeps") / file.stem()
                                 : fs::path(config_.folder))) {
    MakeMembers(file);
  }

  int Run() {
    MakeFolders(folder_);
    const FileLock lock(folder_ / "lock",
                        fmt::format("sweep {}", folder_.string()));
    KeepConfigs();
    Print("sweep folder: {}, {} runs, {} at once\n", folder_.string(),
          members_.size(), config_.jobs);
    const StopSignal stop;
    int num_signals = 0;
    Clock::TimePoint next_signal;
    while (true) {
      if (const auto now = Clock::Real().Now();
          stop.count() > num_signals && now >= next_signal) {
        ++num_signals;
        Signal(num_signals > 2         ? SIGKILL
               : stop.is_termination() ? SIGTERM
                                       : SIGINT);
        // two that follow closely would count as one (StopSignal)
        next_signal = now + (stop.is_termination() ? 2100ms : 400ms);
      }
      Collect();
      if (num_signals == 0) {
        JudgeRuns();
        StartDue();
      }
      if (NumRunning() == 0) break;
      std::this_thread::sleep_for(kTrialPollInterval);
    }
    Report();
    return std::ranges::all_of(members_, &Member::is_done) ? 0 : 1;
  }

 private:
  // Reads the configuration of every run, so that a mistake comes before the
  // first one starts.
  void MakeMembers(const fs::path& file) {
    const fs::path base = file.parent_path() / config_.config;
    for (SweepRun& run : RunsOf(config_)) {
      Member member{.run = std::move(run),
                    .number = fmt::format("{:03}", members_.size())};
      member.folder = folder_ / member.number;
      member.config_file = folder_ / (member.number + ".yaml");
      member.log = folder_ / (member.number + ".log");
      std::vector<std::string> settings = member.run.settings;
      settings.push_back(fmt::format("run.seed={}", member.run.seed));
      settings.push_back(config::Setting("run.dir", member.folder.string()));
      try {
        resolved_.push_back(
            LoadRunConfig(config::Document::FromFile(base, settings), registry_)
                .resolved_yaml);
      } catch (const ConfigError& e) {
        throw ConfigError(fmt::format(
            "{}: run {} ({}, seed {}): {}", file.string(), member.number,
            member.run.label, member.run.seed, e.what()));
      }
      members_.push_back(std::move(member));
    }
  }

  // Writes the configurations, or compares them with the configurations of the
  // folder's runs.
  void KeepConfigs() {
    for (size_t i = 0; i < members_.size(); ++i) {
      Member& member = members_[i];
      if (!fs::exists(member.config_file)) {
        AtomicWriteFile(member.config_file, resolved_[i]);
      } else if (ReadFile(member.config_file, config::YamlLimits::kFileBytes) !=
                 resolved_[i]) {
        throw ConfigError(fmt::format(
            "{}: holds another configuration than run {} ({}, seed {}) of this "
            "sweep; hint: give the sweep another folder, or undo the change",
            member.config_file.string(), member.number, member.run.label,
            member.run.seed));
      }
      Try(&member, [&] {
        if (RunFolder::StatusOf(member.folder) == RunStatus::kComplete) {
          member.status = RunStatus::kComplete;
        } else if (member.has_verdict()) {
          member.status = RunStatus::kStopped;
        }
      });
    }
    if (fs::exists(folder_ / fmt::format("{:03}.yaml", members_.size()))) {
      throw ConfigError(fmt::format(
          "{}: holds more than the {} runs of this sweep; hint: give the sweep "
          "another folder, or undo the change",
          folder_.string(), members_.size()));
    }
  }

  int64_t NumRunning() const {
    return std::ranges::count_if(
        members_, [](const Member& m) { return m.process != nullptr; });
  }
  void Signal(int signal_number) {
    is_signalled_ = true;
    for (Member& member : members_) {
      if (member.process != nullptr) member.process->Signal(signal_number);
    }
  }

  // Works on one run. An exception fails this run and no other one.
  template <typename Work>
  void Try(Member* member, const Work& work) {
    try {
      work();
    } catch (const std::exception& e) {
      member->status = RunStatus::kFailed;
      Say(*member, fmt::format("fails: {}", e.what()));
    }
  }

  // Stops the runs that the median rule is against. The file of the verdict
  // keeps the same command from going on with them.
  void JudgeRuns() {
    const auto now = std::chrono::steady_clock::now();
    if (!config_.median_rule.is_enabled || now < next_judgement_) return;
    next_judgement_ = now + kJudgeInterval;
    std::vector<MedianRule::Evaluations> complete;
    for (Member& member : members_) {
      if (member.status != RunStatus::kComplete) continue;
      Try(&member, [&] {
        complete.push_back(evaluation::ReadEvaluations(member.folder));
      });
    }
    for (Member& member : members_) {
      if (member.process == nullptr || member.status) continue;
      Try(&member, [&] { Judge(member, complete); });
    }
  }

  void Judge(const Member& member,
             const std::vector<MedianRule::Evaluations>& complete) const {
    if (member.is_done()) return;
    const auto run = evaluation::ReadEvaluations(member.folder);
    const auto median = config_.median_rule.MedianAbove(run, complete);
    if (!median) return;
    const std::string verdict = fmt::format(
        "is stopped at step {}: no return above {:.1f}, the median of the "
        "complete runs",
        run.back().step, *median);
    AtomicWriteFile(member.verdict_file(), verdict + "\n");
    Say(member, verdict);
    member.process->Signal(SIGTERM);
  }

  void StartDue() {
    for (Member& member : members_) {
      if (NumRunning() >= config_.jobs) return;
      if (member.status || member.process != nullptr) continue;
      Try(&member, [&] { Start(&member); });
    }
  }

  void Start(Member* member) {
    std::vector<std::string> command = commands_.Of("fleet");
    const bool is_new = !RunFolder::StatusOf(member->folder);
    if (!is_new && CompleteAtLimit(registry_, member->folder)) {
      member->status = RunStatus::kComplete;
      Say(*member, "complete");
      return;
    }
    command.push_back(is_new ? "--config" : "--resume");
    command.push_back((is_new ? member->config_file : member->folder).string());
    member->process =
        std::make_unique<Process>(ProcessOptions{.command = command,
                                                 .stdout_file = member->log,
                                                 .stderr_file = member->log});
    Say(*member, is_new ? "starts" : "goes on");
  }

  void Collect() {
    for (Member& member : members_) {
      if (member.process == nullptr) continue;
      const auto exit = member.process->Wait(std::chrono::milliseconds(0));
      if (!exit) continue;
      member.process.reset();
      Try(&member, [&] { Conclude(*exit, &member); });
    }
  }

  // Tells how a run has ended.
  void Conclude(const ExitStatus& exit, Member* member) {
    member->status =
        RunFolder::StatusOf(member->folder).value_or(RunStatus::kFailed);
    // what the state says may be of an earlier start
    const bool was_stopped = member->status == RunStatus::kStopped &&
                             (is_signalled_ || member->has_verdict());
    if (!exit.ok() && !was_stopped) member->status = RunStatus::kFailed;
    const auto records = evaluation::ReadEvaluations(member->folder);
    Say(*member, fmt::format("{}{}", ToString(*member->status),
                             records.empty()
                                 ? ""
                                 : fmt::format(", return {:.1f} after {}",
                                               records.back().mean,
                                               metrics::FormatDuration(
                                                   records.back().seconds))) +
                     (exit.ok() ? ""
                                : fmt::format(" ({}); see {}", exit.ToString(),
                                              member->log.string())));
  }

  void Say(const Member& member, const std::string& what) const {
    Print("run {} ({}, seed {}) {}\n", member.number, member.run.label,
          member.run.seed, what);
  }

  // Writes results.csv and curves.png, and prints the table.
  void Report() {
    std::string csv = "run,settings,seed,seconds,frames,step,return\n";
    std::vector<CurveOfSettings> curves;
    std::map<std::string, size_t> curve_of;
    for (Member& member : members_) {
      const auto [found, is_new] =
          curve_of.try_emplace(member.run.label, curves.size());
      if (is_new) curves.push_back({.label = member.run.label, .runs = {}});
      std::vector<evaluation::EvaluationRecord> records;
      Try(&member,
          [&] { records = evaluation::ReadEvaluations(member.folder); });
      for (const evaluation::EvaluationRecord& record : records) {
        csv += fmt::format("{},{},{},{:.1f},{},{},{}\n", member.number,
                           Quoted(member.run.label), member.run.seed,
                           record.seconds, record.frames.value_or(0),
                           record.step, record.mean);
      }
      if (!records.empty()) curves[found->second].runs.push_back(records);
    }
    AtomicWriteFile(folder_ / "results.csv", csv);
    try {
      DrawCurvesOfSettings(curves, folder_ / "curves.png");
    } catch (const IoError& e) {
      Print("{}\n", e.what());
    }
    size_t width = 8;
    for (const CurveOfSettings& curve : curves) {
      width = std::max(width, curve.label.size());
    }
    Print("\n{:{}}  {:>5}  {:>16}  {:>8}  {:>7}\n", "settings", width, "seeds",
          "last return", "best", "minutes");
    for (const CurveOfSettings& curve : curves) {
      double best = -INFINITY;
      double minutes = 0.0;
      std::vector<double> last;
      for (const auto& records : curve.runs) {
        for (const auto& record : records) best = std::max(best, record.mean);
        last.push_back(records.back().mean);
        minutes += records.back().seconds / 60.0;
      }
      if (last.empty()) {
        Print("{:{}}  {:>5}  no evaluation\n", curve.label, width, 0);
        continue;
      }
      const auto count = static_cast<double>(last.size());
      double mean = 0.0;
      for (const double value : last) mean += value / count;
      double variance = 0.0;
      for (const double value : last) {
        variance +=
            (value - mean) * (value - mean) / std::max(count - 1.0, 1.0);
      }
      Print("{:{}}  {:>5}  {:>8.1f} +- {:>4.1f}  {:>8.1f}  {:>7.1f}\n",
            curve.label, width, last.size(), mean, std::sqrt(variance), best,
            minutes / count);
    }
    for (const char* name : {"results.csv", "curves.png"}) {
      if (fs::exists(folder_ / name)) {
        Print("{}\n", (folder_ / name).string());
      }
    }
  }

  const Registry& registry_;
  const Commands commands_;
  const SweepConfig config_;
  const fs::path folder_;
  std::vector<Member> members_;
  std::vector<std::string> resolved_;  // configurations of the members
  std::chrono::steady_clock::time_point next_judgement_;
  bool is_signalled_ = false;  // Signal() was called
};

}  // namespace

int RunSweep(const fs::path& file, const Registry& registry,
             const Commands& commands) {
  return Sweep(file, registry, commands).Run();
}

}  // namespace replicant::programs
