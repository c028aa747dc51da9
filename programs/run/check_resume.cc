#include "programs/run/check_resume.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agents/agent_steps.h"
#include "base/config/document.h"
#include "base/config/edit.h"
#include "base/error.h"
#include "evaluation/evaluation_log.h"
#include "fleet/run_folder.h"
#include "learner/checkpoint_folder.h"
#include "programs/run/make_workload.h"
#include "replay/checkpoint/shard_folder.h"

namespace replicant::programs {
namespace {

// The progress of a run at its newest checkpoint.
struct Reached {
  int64_t steps = 0;
  double seconds = 0.0;
  int64_t frames = 0;
  double epochs = 0.0;  // 0 for endless data
};

[[noreturn]] void Refuse(const std::filesystem::path& run_folder,
                         const std::string& problem) {
  throw ConfigError(
      fmt::format("--resume {}: {}", run_folder.string(), problem));
}

// The first limit that the run has reached already, with its key; "": none.
std::string FindLimit(const learner::LimitsConfig& limits,
                      const Reached& reached) {
  std::string found;
  const auto check = [&](const char* key, auto limit, auto value,
                         const char* unit) {
    if (!found.empty() || limit <= 0 || value < limit) return;
    found = fmt::format(
        "{} {} have reached learner.limits.{} = {}; hint: --set "
        "learner.limits.{}=N trains on to a higher limit, 0 without one",
        value, unit, key, limit, key);
  };
  check("max_steps", limits.max_steps, reached.steps, "steps");
  check("max_frames", limits.max_frames, reached.frames, "frames");
  check("max_epochs", limits.max_epochs, reached.epochs, "epochs");
  check("max_seconds", limits.max_seconds, reached.seconds,
        "seconds of training");
  return found;
}

// What makes the run complete; "": nothing. A run without a checkpoint is not.
std::string WhyComplete(const RunConfig& config,
                        const std::filesystem::path& run_folder) {
  const learner::CheckpointReader checkpoints(run_folder / "checkpoints");
  const std::optional<learner::Manifest> newest = checkpoints.NewestManifest();
  if (!newest) return "";
  const auto agent_steps = agents::AgentStepsIn(
      runtime::ReadCheckpointInfo(checkpoints.PathOf(newest->step)).metadata);
  std::string limit =
      FindLimit(config.learner.limits,
                {.steps = newest->step,
                 .seconds = newest->seconds,
                 .frames = agent_steps.value_or(0) * config.task.action_repeat,
                 .epochs = newest->epochs.value_or(0.0)});
  if (!limit.empty() || !config.has_actors()) return limit;
  return FindGoodReturn(config.evaluation, run_folder);
}

// The newest checkpoint may be damaged; the learner then loads an older one.
void CheckVariables(const Invocation& invocation, const agents::TaskSpec& task,
                    const learner::CheckpointReader& checkpoints,
                    const std::filesystem::path& run_folder) {
  const auto workload = MakeModel(invocation, task);
  const std::vector<int64_t> steps = checkpoints.Steps();
  std::string problem;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      runtime::LoadCheckpoint(checkpoints.PathOf(*step), workload->variables());
      return;
    } catch (const IoError& e) {
      if (problem.empty()) problem = e.what();
    }
  }
  Refuse(run_folder,
         fmt::format("the configuration does not fit the run's checkpoints, "
                     "nothing is changed: {}",
                     problem));
}

// The text that `document` holds for a key of each camera, "heights", or of
// all, "height": one value where all are alike.
std::optional<std::string> ValueOfCameras(const config::Document& document,
                                          const std::string& of_each,
                                          const std::string& of_all) {
  const auto list = config::ValueOf(document, of_each);
  if (!list || *list == "[]") return config::ValueOf(document, of_all);
  const std::string first = list->substr(1, list->find_first_of(",]") - 1);
  std::string alike = "[" + first;
  while (alike.size() + 1 < list->size()) alike += ", " + first;
  return alike + "]" == *list ? first : *list;
}

}  // namespace

void CheckSameRun(const RunConfig& config, const std::string& resolved_yaml,
                  const std::filesystem::path& run_folder) {
  const std::filesystem::path file = run_folder / "config.yaml";
  if (!std::filesystem::exists(file)) return;
  const auto before = config::Document::FromFile(file);
  const auto now = config::Document::FromText("resolved", resolved_yaml);
  std::vector<std::string> keys = {"run.seed", "learner.workload"};
  if (config.has_actors()) {
    // what a step of the replay means
    for (const char* const key :
         {"name", "action_repeat", "action_repeat_reward", "observations"}) {
      keys.push_back(fmt::format("task.{}", key));
    }
    if (config.task.has_pixels) {
      for (const char* const key : {"frame_stack", "state"}) {
        keys.push_back(fmt::format("task.pixels.{}", key));
      }
      for (const char* const key : {"height", "width", "camera"}) {
        const std::string of_all = fmt::format("task.pixels.{}", key);
        const std::string of_each = of_all + "s";
        if (ValueOfCameras(before, of_each, of_all) !=
            ValueOfCameras(now, of_each, of_all)) {
          keys.insert(keys.end(), {of_each, of_all});
        }
      }
    }
    // and an item
    for (const replay::TableConfig& table :
         config.replay.MakeShardConfig().tables) {
      for (const char* const key : {"n_step", "discount", "window", "period"}) {
        keys.push_back(fmt::format("replay.tables.{}.{}", table.name, key));
      }
    }
  } else {
    keys.push_back("learner.batch_size");
  }
  for (const std::string& key : keys) {
    const auto was = config::ValueOf(before, key);
    const auto is = config::ValueOf(now, key);
    if (!was || !is || *was == *is) continue;
    throw ConfigError(
        fmt::format("{}: {}, but the run in {} has {}; hint: --config FILE "
                    "with --set run.dir=FOLDER begins another run",
                    key, *is, run_folder.string(), *was));
  }
}

void CheckResume(const Invocation& invocation, const agents::TaskSpec& task,
                 const std::filesystem::path& run_folder) {
  const RunConfig& config = invocation.config();
  if (config.has_actors()) {
    // the roles read the evaluations, too
    static_cast<void>(evaluation::ReadEvaluations(run_folder));
    replay::CheckNumShards(run_folder / "replay", config.replay.shards);
  }
  const learner::CheckpointReader checkpoints(run_folder / "checkpoints");
  if (!checkpoints.NewestManifest()) return;
  if (const std::string why = WhyComplete(config, run_folder); !why.empty()) {
    throw RunIsComplete(fmt::format("--resume {}: the run is complete: {}",
                                    run_folder.string(), why));
  }
  CheckVariables(invocation, task, checkpoints, run_folder);
}

std::string FindGoodReturn(const evaluation::EvaluationConfig& evaluation,
                           const std::filesystem::path& run_folder) {
  if (!evaluation.enabled) return "";
  for (const auto& record : evaluation::ReadEvaluations(run_folder)) {
    if (!evaluation.IsGoodEnough(record.mean)) continue;
    return fmt::format(
        "return {:.1f} at step {} has reached evaluation.stop_at_return = "
        "{:g}; hint: --set evaluation.stop_at_return=N trains on to a higher "
        "return, null without such a limit",
        record.mean, record.step, *evaluation.stop_at_return);
  }
  return "";
}

bool CompleteAtLimit(const Registry& registry,
                     const std::filesystem::path& run_folder) {
  using fleet::RunFolder;
  const auto own = LoadRunConfig(
      config::Document::FromFile(RunFolder::ConfigFile(run_folder)), registry);
  if (WhyComplete(own.config, run_folder).empty()) return false;
  const auto status = RunFolder::StatusOf(run_folder);
  // a run that failed may have reached its limit, too
  if (status == fleet::RunStatus::kFailed) return false;
  if (status != fleet::RunStatus::kComplete) RunFolder::Complete(run_folder);
  return true;
}

}  // namespace replicant::programs
