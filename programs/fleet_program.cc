// Runs a whole training on this machine: replay, learner, actors and evaluator,
// started, watched, started again and stopped together; then says what came of
// it.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/evaluation_log.h"
#include "agents/task_spec.h"
#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/thread.h"
#include "core/replicator/replication_config.h"
#include "core/runtime/checkpoint.h"
#include "fleet/placement.h"
#include "fleet/run_fleet.h"
#include "learner/checkpoint_folder.h"
#include "programs/check_run.h"
#include "programs/learning_curve.h"
#include "programs/program.h"
#include "programs/summary.h"
#include "replay/checkpoint/checkpointer.h"

namespace replicant::fleet {
namespace {

using programs::RunConfig;

// By how much roles give way to a learner that runs on the same processors: a
// step's threads wait for each other, so that whoever interrupts one holds up
// all. They need little, and find it while the learner rests.
constexpr int kLevelsBesideLearner = 10;

// Where the programs of the roles are: beside this one.
std::filesystem::path ProgramFolder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::vector<RoleRequest> Requests(const RunConfig& config) {
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const bool has_servers =
      replication.strategy == replicator::Strategy::kParameterServer;
  const auto worker = [&](const char* role, uint32_t index) {
    return RoleRequest{.id = {role, index},
                       .threads = replication.threads *
                                  replication.logical_devices *
                                  (has_servers ? replication.replicas_per_group
                                               : replication.replicas),
                       .is_exclusive = config.fleet.exclusive_learner};
  };
  std::vector<RoleRequest> requests = {worker("learner", 0)};
  if (has_servers) {
    for (int i = 1; i < replication.num_groups(); ++i) {
      requests.push_back(worker("worker", static_cast<uint32_t>(i)));
    }
    for (size_t i = 0; i < replication.servers.size(); ++i) {
      requests.push_back(
          {.id = {"server", static_cast<uint32_t>(i)}, .load = 0.3});
    }
  }
  if (!programs::HasActors(config)) return requests;
  requests.push_back({.id = {"replay", 0}, .load = 0.2});
  for (int64_t i = 0; i < config.actors.count; ++i) {
    requests.push_back({.id = {"actor", static_cast<uint32_t>(i)}});
  }
  if (config.evaluation.enabled) {
    requests.push_back({.id = {"evaluator", 0}, .load = 0.3});
  }
  return requests;
}

// Leaves out checkpoints newer than the newest one whose part in the replay can
// be read. If there is none such the replay will say what is wrong.
void LeaveOutDamaged(const std::filesystem::path& folder) {
  const learner::CheckpointFolder checkpoints(folder / "checkpoints",
                                              /*num_kept=*/1);
  std::vector<std::pair<int64_t, std::string>> damaged;
  const std::vector<int64_t> steps = checkpoints.Steps();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    const learner::Manifest manifest = checkpoints.ReadManifest(*step);
    const std::string damage =
        manifest.has_input ? replay::FindDamage(folder / "replay", manifest.id)
                           : "";
    if (!damage.empty()) {
      damaged.emplace_back(*step, damage);
      continue;
    }
    for (const auto& [left_out, problem] : damaged) {
      spdlog::warn("checkpoint of step {} is left out: {}", left_out, problem);
      checkpoints.LeaveOut(left_out);
    }
    return;
  }
}

// Has the replay go back to the moment of the learner's newest checkpoint.
std::vector<std::string> RestoreArguments(const std::filesystem::path& folder) {
  const auto manifest =
      learner::CheckpointFolder(folder / "checkpoints", /*num_kept=*/1)
          .NewestManifest();
  if (!manifest || !manifest->has_input) return {};
  return {"--set", fmt::format("replay.restore_checkpoint={}", manifest->id)};
}

// Has mpirun start the learner's processes, of which the first one speaks for
// all. It is mpirun that would take a SIGTERM, and end them at once.
void RunUnderMpi(const replicator::ReplicationConfig& config, RoleSpec* spec) {
  std::vector<std::string> command = {
      "mpirun", "-n",
      std::to_string(config.replicas / config.replicas_per_process),
      // the processors are chosen already, and may be fewer
      "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"};
  command.insert(command.end(), spec->command.begin(), spec->command.end());
  spec->command = std::move(command);
  spec->takes_sigterm = false;
}

RoleSpec MakeRole(const PlacedRole& placed, const RunConfig& config,
                  const agents::TaskSpec& task,
                  const std::filesystem::path& folder) {
  const std::string& role = placed.request.id.role;
  const auto add_index = [&placed](RoleSpec* spec) {
    spec->command.insert(spec->command.end(),
                         {"--index", std::to_string(placed.request.id.index)});
  };
  RoleSpec spec;
  spec.id = placed.request.id;
  spec.cpus = placed.cpus;
  spec.restart = config.fleet.restart.at(role);
  const bool is_beside_learner = role == "worker" || role == "server";
  const bool is_of_learner = role == "learner" || is_beside_learner;
  if (!config.fleet.exclusive_learner && !is_of_learner) {
    spec.niceness_levels = kLevelsBesideLearner;
  }
  spec.command = {
      (ProgramFolder() / (is_beside_learner ? "learner" : role)).string(),
      "--config", (folder / "config.yaml").string()};
  if (is_beside_learner) {
    spec.command.insert(spec.command.end(), {"--role", role});
    add_index(&spec);
  }
  const auto set = [&spec](const std::string& setting) {
    spec.command.push_back("--set");
    spec.command.push_back(setting);
  };
  set("run.dir=" + folder.string());
  if (role == "replay") {
    spec.start_stage = 0;
    spec.stop_stage = 2;
    set(fmt::format("replay.observation_bytes={}", task.observation_bytes()));
    set(fmt::format("replay.action_bytes={}", task.action_bytes()));
    set(fmt::format("replay.frame_bytes={}", task.frame_bytes()));
    for (const replay::TableConfig& table :
         config.replay.MakeShardConfig().tables) {
      set(fmt::format("replay.tables.{}.stack={}", table.name,
                      task.frame_stack));
    }
    set(fmt::format("replay.checkpoint_folder={}",
                    (folder / "replay").string()));
    // and the part of the one that the learner is about to complete
    set(fmt::format(
        "replay.num_kept_checkpoints={}",
        std::max<int64_t>(config.replay.num_kept_checkpoints,
                          config.learner.num_kept_checkpoints + 1)));
    spec.first_arguments = RestoreArguments(folder);
  } else if (role == "learner") {
    spec.start_stage = 1;
    spec.stop_stage = 1;
    spec.on_success = RoleSpec::OnSuccess::kCompletesRun;
    const replicator::ReplicationConfig& replication =
        config.learner.replication;
    if (replication.strategy == replicator::Strategy::kBetweenGraph) {
      RunUnderMpi(replication, &spec);
    }
  } else if (role == "server") {
    spec.start_stage = 0;
    spec.stop_stage = 2;
    // once the learner has ended the training
    spec.on_success = RoleSpec::OnSuccess::kDone;
  } else if (role == "worker") {
    spec.start_stage = 2;
    spec.stop_stage = 0;
    spec.on_success = RoleSpec::OnSuccess::kDone;
  } else if (role == "evaluator") {
    spec.start_stage = 2;
    spec.stop_stage = 0;
    // when the policy is good enough
    spec.on_success = RoleSpec::OnSuccess::kCompletesRun;
    spec.is_optional = true;
  } else {
    spec.start_stage = 2;
    spec.stop_stage = 0;
    add_index(&spec);
  }
  return spec;
}

// What the progress line shows, for people who wait for returns.
std::vector<ProgressField> ProgressFields(const RunConfig& config) {
  using Kind = ProgressField::Kind;
  std::vector<ProgressField> fields = {{.kind = Kind::kValue,
                                        .label = "updates",
                                        .role = "learner",
                                        .number = "updates"},
                                       {.kind = Kind::kValue,
                                        .label = "updates/s",
                                        .role = "learner",
                                        .number = "updates_per_s"},
                                       // of the run, as max_frames counts
                                       {.kind = Kind::kValue,
                                        .label = "frames",
                                        .role = "learner",
                                        .number = "frames"},
                                       {.kind = Kind::kRate,
                                        .label = "frames/s",
                                        .role = "actor",
                                        .number = "frames"},
                                       {.kind = Kind::kValue,
                                        .label = "samples/insert",
                                        .role = "replay",
                                        .number = "samples_per_insert"},
                                       {.kind = Kind::kValue,
                                        .label = "return",
                                        .role = "actor",
                                        .number = "return"}};
  if (config.evaluation.enabled) {
    fields.push_back({.kind = Kind::kValue,
                      .label = "evaluation",
                      .role = "evaluator",
                      .number = "evaluation_return"});
  }
  return fields;
}

// Tries the last checkpoint out, on film, in a process that another signal
// ends. What goes wrong is logged.
void EvaluateLastCheckpoint(const RunConfig& config,
                            const std::filesystem::path& folder,
                            const std::string& began_ms,
                            const StopSignal& stop) {
  const std::filesystem::path log = folder / "logs" / "last-evaluation.log";
  ProcessOptions options;
  options.command = {(ProgramFolder() / "evaluator").string(), "--checkpoint",
                     folder.string(), "--began_ms", began_ms};
  if (config.evaluation.video.enabled) options.command.push_back("--video");
  options.stdout_file = log;
  options.stderr_file = log;
  spdlog::info("evaluates the last checkpoint; a signal skips that");
  const int num_signals = stop.count();
  try {
    Process evaluator(options);
    std::optional<ExitStatus> status;
    while (!status && stop.count() == num_signals) {
      status = evaluator.Wait(std::chrono::milliseconds(50));
    }
    if (!status) {
      // it takes the film that it has begun away
      evaluator.Signal(SIGTERM);
      evaluator.Wait(std::chrono::seconds(2));
      spdlog::warn("the last evaluation was skipped");
    } else if (!status->ok()) {
      spdlog::warn("the last evaluation: {}; {} ends with: {}",
                   status->ToString(), log.string(),
                   LogTail(log, /*max_lines=*/1, /*indent=*/""));
    }
  } catch (const IoError& e) {
    spdlog::warn("the last evaluation: {}", e.what());
  }
}

// Draws the curve and prints what the run came to.
void Summarize(const RunConfig& config, const programs::RunTotals& totals,
               const std::filesystem::path& folder) {
  const auto evaluations = programs::DrawCurveOfRun(folder, config.task.name);
  std::printf("\n%s", programs::SummaryTable(config, totals, evaluations,
                                             folder, ProgramFolder())
                          .c_str());
  std::fflush(stdout);
}

// The step that the learner begins with.
int64_t FirstStep(const std::filesystem::path& folder) {
  const auto checkpoint = programs::NewestCheckpoint(folder);
  return checkpoint ? runtime::ReadCheckpointInfo(*checkpoint).step : 0;
}

int Run(const RunConfig& config, const agents::TaskSpec& task,
        RunFolder folder) {
  const std::filesystem::path& path = folder.path();
  const StopSignal stop;
  LeaveOutDamaged(path);
  const int64_t first_step = FirstStep(path);
  const std::string began_ms =
      fmt::format("{:.0f}", 1e3 * actors::FindBeginning(path));
  FleetRun run{.config = config.fleet,
               .seed = static_cast<uint64_t>(config.run.seed),
               .roles = {},
               .progress = ProgressFields(config)};
  const CpuTopology topology = ReadCpuTopology();
  const std::vector<PlacedRole> placed = Place(topology, Requests(config));
  std::fputs(PlacementTable(topology, placed).c_str(), stdout);
  std::printf("run folder: %s\n", path.c_str());
  std::fflush(stdout);
  for (const PlacedRole& role : placed) {
    run.roles.push_back(MakeRole(role, config, task, path));
    if (role.request.id.role != "evaluator") continue;
    std::vector<std::string>& command = run.roles.back().command;
    command.insert(command.end(), {"--began_ms", began_ms});
  }
  const Clock::TimePoint start = Clock::Real().Now();
  FleetStatus status;
  const RunResult result = RunFleet(run, stop, folder, status);
  const programs::RunTotals totals = {
      .status = ToString(result.status),
      .reason = result.message.substr(0, result.message.find('\n')),
      .resumed_at = first_step,
      .wall_clock_s =
          std::chrono::duration<double>(Clock::Real().Now() - start).count(),
      .frames = status.Sum("actor", "frames"),
      .updates =
          status.Last("learner", "updates") - static_cast<double>(first_step),
      .samples_per_insert = status.Last("replay", "samples_per_insert")};
  const bool has_checkpoint = programs::NewestCheckpoint(path).has_value();
  const bool has_failed = result.status == RunStatus::kFailed;
  if (has_checkpoint && !has_failed && config.evaluation.enabled &&
      stop.count() < 2) {
    EvaluateLastCheckpoint(config, path, began_ms, stop);
  }
  // of a run that failed before it had learned anything the problem is enough
  if (has_checkpoint || !has_failed) Summarize(config, totals, path);
  for (const std::string& problem : result.problems) {
    std::fprintf(stderr, "fleet: %s\n", problem.c_str());
  }
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.message.c_str());
  return result.ok() ? 0 : 1;
}

int Main(int argc, char** argv) {
  std::string resumed;
  return programs::RunProgram(
      argc, argv,
      {.name = "fleet",
       .about = "Runs a training on this machine: replay, learner, actors and "
                "evaluator.",
       .add_options =
           [&](config::CommandLine& command_line) {
             command_line.AddConfigOption(
                 "--resume", &resumed,
                 "go on with the run of this folder, by the configuration "
                 "that lies in it, changed by --set",
                 RunFolder::ConfigFile);
           }},
      [&](const config::Loaded<RunConfig>& loaded) {
        // before there is a folder
        RunConfig config = loaded.config;
        agents::TaskSpec task;
        programs::CheckHeartbeats(config);
        if (programs::HasActors(config)) {
          task = programs::CheckRun(config);
          programs::CheckAddresses(config);
        } else {
          config.evaluation.enabled = false;
        }
        return Run(
            config, task,
            resumed.empty()
                ? RunFolder::Create(loaded.config.run, loaded.resolved_yaml)
                : RunFolder::Resume(resumed, loaded.resolved_yaml));
      });
}

}  // namespace
}  // namespace replicant::fleet

int main(int argc, char** argv) { return replicant::fleet::Main(argc, argv); }
