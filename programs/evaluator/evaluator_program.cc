#include "programs/evaluator/evaluator_program.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/followed_policy.h"
#include "agents/agent_steps.h"
#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/error.h"
#include "base/metrics/json_lines.h"
#include "base/process.h"
#include "engine/runtime/checkpoint.h"
#include "evaluation/best_policy.h"
#include "evaluation/evaluation_log.h"
#include "evaluation/evaluation_schedule.h"
#include "evaluation/evaluator.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "programs/run/find_checkpoint.h"
#include "programs/run/stop_order.h"

namespace replicant::programs {
namespace {

using evaluation::EvaluationLog;
using evaluation::EvaluationRecord;
using evaluation::Evaluator;
using evaluation::VideoFile;
using namespace std::chrono_literals;

struct EvaluatorOptions {
  std::string checkpoint;
  std::string which = WhichOption::kDefault;
  std::optional<std::string> video;
  std::string began_ms;
  bool is_json = false;

  // When the run began, as evaluation::FindBeginning() gives it.
  double BeganSeconds() const {
    constexpr int64_t kMax = int64_t{1} << 53;
    return 1e-3 * static_cast<double>(
                      ParseInteger("--began_ms", began_ms, {-kMax, kMax}));
  }
};

Evaluator MakeEvaluator(const Invocation& invocation) {
  const RunConfig& config = invocation.config();
  return Evaluator(invocation.registry.tasks,
                   {.task = config.task,
                    .agent = config.MakeAgent(),
                    .evaluation = config.evaluation,
                    .backend = config.learner.replication.policy_backend()});
}

// Evaluates the newest parameters of a learner, at intervals.
class Follower {
 public:
  Follower(const Invocation& invocation, double began_s)
      : config_(invocation.config().evaluation),
        action_repeat_(invocation.config().task.action_repeat),
        folder_(RunFolderOf(invocation.config())),
        evaluator_(MakeEvaluator(invocation)),
        followed_(invocation.config().learner.parameter_bind,
                  rpc::GroupKey::FromFile(KeyFileOf(invocation.config())),
                  &evaluator_.policy()),
        log_(folder_, began_s, &Clock::Real(), &disk_) {
    heartbeat_.SetGaugeSource("disk_wait_s",
                              [this] { return disk_.WaitSeconds(); });
    const auto earlier = evaluation::ReadEvaluations(folder_);
    if (earlier.empty()) return;
    Report(earlier.back());
    seen_ = evaluated_ = log_.last_step();
  }

  // Runs until it is told to stop or the policy is good enough. Returns the
  // exit code: 0 without an order to stop means that the run is complete.
  int Run() {
    heartbeat_.SetState(fleet::RoleState::kWaiting,
                        "parameters of the learner");
    const Clock& clock = Clock::Real();
    const Clock::TimePoint begin = clock.Now();
    Clock::TimePoint next_video = begin + FromSeconds(config_.video.interval_s);
    while (!IsOver()) {
      Poll();
      const Clock::TimePoint now = clock.Now();
      const double seconds = ToSeconds(now - begin);
      // an evaluation is deterministic: the same policy gives the same result
      if (!followed_.version() || seen_ == evaluated_ ||
          !schedule_.IsDue(seconds, NumFrames())) {
        continue;
      }
      heartbeat_.SetState(fleet::RoleState::kRunning);
      schedule_.Advance(seconds, NumFrames());
      const bool has_film = config_.video.enabled && now >= next_video;
      if (has_film) next_video = now + FromSeconds(config_.video.interval_s);
      evaluated_ = seen_;
      if (IsGoodEnough(*seen_, has_film)) return 0;
    }
    heartbeat_.SetState(fleet::RoleState::kDraining);
    return ExitCodeOfStop(heartbeat_options_, heartbeat_);
  }

 private:
  bool IsOver() const { return stop_.count() > 0 || heartbeat_.StopOrder(); }

  // Sets the learner's newest policy, if there is one. If the learner has
  // fallen back to an earlier checkpoint, the evaluations of the steps that it
  // has lost are removed, and are due again.
  void Poll() {
    followed_.Poll(100ms);
    if (!followed_.version()) return;
    const auto step = static_cast<int64_t>(*followed_.version());
    if (seen_ && step < *seen_) {
      log_.Rewind(step);
      evaluated_ = log_.last_step();
      schedule_.PlanAfter(log_.last_frames());
    }
    seen_ = step;
  }

  // Agent steps of all actors when the policy was published.
  int64_t NumFrames() const { return followed_.agent_steps() * action_repeat_; }

  void Report(const EvaluationRecord& record) {
    heartbeat_.SetGauge("evaluation_return", record.mean);
    heartbeat_.SetGauge("evaluation_step", static_cast<double>(record.step));
  }

  // Evaluates and returns whether the result ends the run.
  bool IsGoodEnough(int64_t step, bool has_film) {
    const double seconds = log_.Now();
    const int64_t frames = NumFrames();
    std::optional<Evaluator::Trial> trial;
    try {
      trial = evaluator_.Run(has_film ? VideoFile(folder_, step) : "", [this] {
        followed_.Receive();
        return IsOver();
      });
    } catch (const InvalidArgument& error) {
      // a bad number of the environment; another policy may not meet it
      spdlog::warn("step {}: no evaluation: {}", step, error.what());
      heartbeat_.SetCounter("failed_evaluations", ++num_failed_);
      return false;
    }
    if (!trial) return false;
    if (trial->result.is_cut) {
      heartbeat_.SetCounter("cut_evaluations", ++num_cut_);
    }
    if (!trial->video_problem.empty()) {
      spdlog::warn("no video: {}", trial->video_problem);
    }
    const EvaluationRecord record =
        evaluation::MakeRecord(seconds, step, frames, trial->result);
    log_.Write(record);
    heartbeat_.SetCounter("dropped_records",
                          static_cast<double>(log_.num_dropped()));
    best_.Offer(record, evaluator_.policy().variables(),
                followed_.agent_steps());
    if (has_film && trial->video_problem.empty()) {
      log_.AddVideo(VideoFile(folder_, step), step);
    }
    Report(record);
    spdlog::info("step {}: return {:.1f} +- {:.1f} of {} episodes", step,
                 record.mean, record.standard_deviation, record.num_episodes);
    if (!config_.IsGoodEnough(record.mean)) return false;
    const std::string why =
        fmt::format("return {:.1f} at step {} reaches {} = {:g}", record.mean,
                    step, "evaluation.stop_at_return", *config_.stop_at_return);
    spdlog::info("{}", why);
    heartbeat_.SetState(fleet::RoleState::kDraining, why);
    return true;
  }

  const fleet::HeartbeatSenderOptions heartbeat_options_ =
      fleet::HeartbeatSenderOptions::FromEnvironment({.id = {"evaluator", 0}});
  const evaluation::EvaluationConfig config_;
  evaluation::EvaluationSchedule schedule_{config_};
  const int64_t action_repeat_;
  const std::filesystem::path folder_;
  const StopSignal stop_;
  DiskQueue disk_;
  fleet::HeartbeatSender heartbeat_{heartbeat_options_};
  Evaluator evaluator_;
  actors::FollowedPolicy followed_;
  EvaluationLog log_;
  evaluation::BestPolicy best_{folder_};
  double num_failed_ = 0.0;
  double num_cut_ = 0.0;
  // the learner's steps of the newest policy and of the one evaluated last, by
  // an earlier process too
  std::optional<int64_t> seen_, evaluated_;
};

// Prints an evaluation as one JSON object; `video` is empty for none.
void PrintJson(const RunConfig& config, const std::filesystem::path& checkpoint,
               const EvaluationRecord& record,
               const std::vector<int64_t>& lengths, const std::string& video) {
  const std::vector<double> steps(lengths.begin(), lengths.end());
  metrics::JsonObject object;
  object.Add("task", config.task.name)
      .Add("checkpoint", checkpoint.string())
      .Add("step", record.step);
  if (record.frames) object.Add("frames", *record.frames);
  object.Add("seed", config.evaluation.seed)
      .Add("episodes", record.num_episodes)
      .Add("return", record.mean)
      .Add("return_std", record.standard_deviation)
      .Add("return_min", record.min)
      .Add("return_max", record.max)
      .Add("length", record.mean_length)
      .Add("returns", std::span<const double>(record.returns))
      .Add("lengths", std::span<const double>(steps));
  if (!video.empty()) object.Add("video", video);
  fmt::print("{}\n", object.ToString());
}

// Evaluates a checkpoint and prints the result.
int TryOut(const Invocation& invocation, const EvaluatorOptions& options) {
  const RunConfig& config = invocation.config();
  const std::filesystem::path run =
      FindRun(kCheckpointOption, options.checkpoint);
  const std::filesystem::path checkpoint =
      FindCheckpoint(kCheckpointOption, options.checkpoint, options.which);
  Evaluator evaluator = MakeEvaluator(invocation);
  const runtime::CheckpointInfo info =
      runtime::LoadPartOfCheckpoint(checkpoint, evaluator.policy().variables());
  std::filesystem::path video = options.video.value_or("");
  if (options.video && video.empty()) video = VideoFile(run, info.step);

  const StopSignal stop;
  std::optional<EvaluationLog> log;
  if (!options.began_ms.empty()) log.emplace(run, options.BeganSeconds());
  const double seconds = log ? log->Now() : 0.0;
  const auto trial = evaluator.Run(video, [&stop] { return stop.count() > 0; });
  if (!trial) {
    std::fputs("evaluator: stopped by a signal\n", stderr);
    return 1;
  }
  std::optional<int64_t> frames = agents::AgentStepsIn(info.metadata);
  if (frames) *frames *= config.task.action_repeat;
  const EvaluationRecord record =
      evaluation::MakeRecord(seconds, info.step, frames, trial->result);
  if (log) {
    // the evaluator may have got further than the last checkpoint
    const int64_t last = log->last_step().value_or(-1);
    if (info.step > last) log->Write(record);
    evaluation::BestPolicy(run).Offer(
        record, evaluator.policy().variables(),
        agents::AgentStepsIn(info.metadata).value_or(0));
    if (options.video && trial->video_problem.empty() && info.step >= last) {
      log->AddVideo(video, info.step);
    }
  }
  const bool has_video = options.video && trial->video_problem.empty();
  if (options.is_json) {
    PrintJson(config, checkpoint, record, trial->result.lengths,
              has_video ? video.string() : "");
    return options.video && !has_video ? 1 : 0;
  }
  fmt::print(
      "task        {}\n"
      "checkpoint  {}\n"
      "step        {}\n"
      "episodes    {} from seed {}\n"
      "return      {:.1f} +- {:.1f} (min {:.1f}, max {:.1f})\n",
      config.task.name, checkpoint.string(), info.step, record.num_episodes,
      config.evaluation.seed, record.mean, record.standard_deviation,
      record.min, record.max);
  if (!options.video) return 0;
  fmt::print("video       {}\n",
             has_video ? video.string() : "none: " + trial->video_problem);
  return has_video ? 0 : 1;
}

int Run(const Invocation& invocation, const EvaluatorOptions& options) {
  if (!options.checkpoint.empty()) return TryOut(invocation, options);
  if (options.video) {
    throw ConfigError(
        "--video: needs --checkpoint; hint: evaluation.video records videos "
        "during a training");
  }
  return Follower(invocation,
                  options.began_ms.empty()
                      ? BeginningOfRun(RunFolderOf(invocation.config()))
                      : options.BeganSeconds())
      .Run();
}

void AddOptions(config::CommandLine& command_line, EvaluatorOptions* options) {
  command_line.AddConfigOption(
      kCheckpointOption, &options->checkpoint,
      "folder of a run, whose newest checkpoint is evaluated, or of one "
      "checkpoint; the run's configuration applies",
      [](const std::string& given) {
        return FindRun(kCheckpointOption, given) / "config.yaml";
      });
  command_line.AddOption(WhichOption::kName, &options->which,
                         WhichOption::kHelp);
  command_line.AddSetting("--episodes", "evaluation.episodes",
                          "number of episodes");
  command_line.AddSetting("--seed", "evaluation.seed",
                          "seed of the episodes' first states");
  command_line.AddOption(
      "--video", &options->video,
      "with --checkpoint: record the first episode to this file; "
      "default: a file in the run's folder");
  command_line.AddFlag("--json", &options->is_json,
                       "with --checkpoint: print the result as one JSON "
                       "object, with the return of every episode");
  command_line.AddOption(
      "--began_ms", &options->began_ms,
      "start of the run, in milliseconds of this host's steady clock; with it, "
      "the result is appended to the run's evaluations.jsonl");
}

}  // namespace

int EvaluatePolicy(const Invocation& invocation,
                   const std::string& checkpoint) {
  return TryOut(invocation, {.checkpoint = checkpoint});
}

Program EvaluatorProgram() {
  const auto options = std::make_shared<EvaluatorOptions>();
  return {.name = "evaluator",
          .about = "Evaluates the policy of a training, without noise.",
          .add_options =
              [options](config::CommandLine& command_line) {
                AddOptions(command_line, options.get());
              },
          .run =
              [options](const Invocation& invocation) {
                return Run(invocation, *options);
              }};
}

}  // namespace replicant::programs
