#include "programs/fleet/fleet_program.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agents/agent_steps.h"
#include "agents/task_spec.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/rewind.h"
#include "base/process.h"
#include "base/thread.h"
#include "engine/runtime/checkpoint.h"
#include "evaluation/evaluation_log.h"
#include "fleet/metrics_page.h"
#include "fleet/placement.h"
#include "fleet/run_fleet.h"
#include "learner/checkpoint_folder.h"
#include "programs/deploy/deploy.h"
#include "programs/fleet/report.h"
#include "programs/fleet/run_control.h"
#include "programs/fleet/scalable_actors.h"
#include "programs/join/join_program.h"
#include "programs/roles/fleet_roles.h"
#include "programs/run/check_resume.h"
#include "programs/run/check_run.h"
#include "programs/run/find_checkpoint.h"
#include "programs/run/learning_curve.h"
#include "programs/run/run_model.h"
#include "programs/run/summary.h"
#include "programs/sweep/sweep.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/checkpoint/shard_folder.h"
#include "replay/prior/mixed_source.h"

namespace replicant::programs {
namespace {

using fleet::RunFolder;

// Longest last evaluation after SIGTERM or SIGHUP: a system that ends a service
// or a container kills it after 30 s or more.
constexpr double kTerminatedEvaluationS = 10.0;

// Goes back to the newest checkpoint whose parts can all be read: those of the
// replay's shards, too, which are in the folder if there are any. If there is
// none, the roles report the damage.
void LeaveOutDamaged(const std::filesystem::path& folder, int64_t num_shards) {
  const learner::CheckpointFolder checkpoints(folder / "checkpoints",
                                              /*num_kept=*/1);
  const std::string damage =
      checkpoints.LeaveOutDamaged([&](const learner::Manifest& manifest) {
        std::string found =
            replay::MixedSource::FindDamage(checkpoints.PathOf(manifest.step));
        for (int64_t i = 0;
             manifest.has_input && i < num_shards && found.empty(); ++i) {
          found = replay::FindDamage(
              replay::ShardFolder(folder / "replay", i, num_shards),
              manifest.id);
        }
        return found;
      });
  if (!damage.empty()) spdlog::warn("no checkpoint can be read: {}", damage);
}

// Evaluates and records the last checkpoint in a separate process, which
// another signal or fleet.last_evaluation_timeout_s ends, or 10 s if the system
// ends the run. Problems are logged.
void EvaluateLastCheckpoint(const RolePlan& plan, const StopSignal& stop) {
  const std::filesystem::path& folder = plan.run_folder;
  const std::filesystem::path log = folder / "logs" / "last-evaluation.log";
  ProcessOptions options;
  options.command = plan.commands.Of("evaluator");
  options.command.insert(
      options.command.end(),
      {"--checkpoint", folder.string(), "--began_ms", plan.began_ms});
  if (plan.config.evaluation.video.enabled)
    options.command.push_back("--video");
  options.stdout_file = log;
  options.stderr_file = log;
  spdlog::info("evaluates the last checkpoint; a signal skips that");
  const int num_signals = stop.count();
  try {
    Process evaluator(options);
    std::optional<ExitStatus> status;
    const double limit_s = plan.config.fleet.last_evaluation_timeout_s;
    const bool is_terminated =
        stop.is_termination() && limit_s > kTerminatedEvaluationS;
    const double timeout_s = is_terminated ? kTerminatedEvaluationS : limit_s;
    const Clock& clock = Clock::Real();
    const Clock::TimePoint deadline = clock.Now() + FromSeconds(timeout_s);
    while (!status && stop.count() == num_signals && clock.Now() < deadline) {
      status = evaluator.Wait(std::chrono::milliseconds(50));
    }
    if (!status) {
      // it removes the video that it has begun
      evaluator.Signal(SIGTERM);
      evaluator.Wait(std::chrono::seconds(2));
      spdlog::warn("the last evaluation was skipped{}",
                   stop.count() > num_signals
                       ? ""
                       : fmt::format(", since it took longer than {}{:g} s; {}",
                                     is_terminated
                                         ? "a run that the system ends may: "
                                         : "fleet.last_evaluation_timeout_s = ",
                                     timeout_s, log.string()));
    } else if (!status->ok()) {
      spdlog::warn("the last evaluation: {}; {} ends with: {}",
                   status->ToString(), log.string(),
                   fleet::LogTail(log, /*max_lines=*/1, /*indent=*/""));
    }
  } catch (const IoError& e) {
    spdlog::warn("the last evaluation: {}", e.what());
  }
}

// Draws the curve and prints the results of the run.
void Summarize(const RolePlan& plan, const RunTotals& totals) {
  const auto evaluations =
      DrawCurveOfRun(plan.run_folder, plan.config.task.name);
  std::printf("\n%s", SummaryTable(plan.config, totals, evaluations,
                                   plan.run_folder, plan.commands)
                          .c_str());
  std::fflush(stdout);
}

// Returns the step that the learner begins with, and removes later points from
// the run's curves.
int64_t RewindToCheckpoint(const std::filesystem::path& folder,
                           int64_t action_repeat) {
  runtime::CheckpointInfo info;
  std::optional<int64_t> frames = 0;
  if (const auto checkpoint = NewestCheckpoint(folder)) {
    info = runtime::ReadCheckpointInfo(*checkpoint);
    frames = agents::AgentStepsIn(info.metadata);
    if (frames) *frames *= action_repeat;
  }
  metrics::RewindRun(folder, info.step, frames);
  return info.step;
}

// The key pair of this start of the run: the configuration's, or the folder's,
// which is created if absent.
std::filesystem::path KeyFileOfStart(const RunConfig& config,
                                     const RunFolder& folder) {
  const std::string& given = config.run.key_file;
  if (given == "auto") return folder.MakeKey();
  return given.empty() ? "" : std::filesystem::absolute(given);
}

// How hosts join the run at `endpoint`, and which of them it starts.
fleet::HostsOfRun HostsOf(const RunConfig& config, const Commands& commands,
                          const std::string& endpoint,
                          const RunFolder& folder) {
  fleet::HostsOfRun hosts{
      .endpoint = endpoint,
      .pool = {.files = FilesForHosts(folder.path(), folder.config_file()),
               .timeout = FromSeconds(config.cluster.host_timeout_s),
               .processors_per_process =
                   config.cluster.roles.at("actor").cores},
      .is_restarted =
          config.cluster.backend == fleet::ClusterBackend::kKubernetes};
  const int64_t num_tasks = config.cluster.slurm.actor_tasks;
  if (config.cluster.backend == fleet::ClusterBackend::kSlurm) {
    hosts.pool.idle_timeout = FromSeconds(config.cluster.slurm.idle_task_s);
    for (int64_t i = 0; i < num_tasks; ++i) {
      hosts.expected.push_back({.label = fmt::format("array task {}", i),
                                .name = fmt::format("_{}", i),
                                .is_end = true});
    }
    for (const fleet::RoleId& id : RemoteRoles(config)) {
      if (id.role == "actor") continue;
      hosts.expected.push_back({.label = "the job of " + id.ToString(),
                                .name = "." + id.ToString(),
                                .is_end = true});
    }
  }
  if (config.cluster.backend == fleet::ClusterBackend::kSsh) {
    hosts.launched = LaunchedAgents(config, commands);
    for (const fleet::HostLauncher::Host& host : hosts.launched) {
      hosts.expected.push_back({.label = host.name, .name = host.name});
    }
  }
  return hosts;
}

// Whether nobody shall go on with the run: it is complete, or `fleet --stop` or
// a person has ended it.
bool IsOver(fleet::RunStatus status, const StopSignal& stop) {
  return status == fleet::RunStatus::kComplete ||
         (status == fleet::RunStatus::kStopped && !stop.is_termination());
}

int Run(RunConfig config, const Commands& commands,
        const agents::TaskSpec& task, RunFolder& folder) {
  const std::filesystem::path& path = folder.path();
  // hosts that find an address here read the key at once
  const std::filesystem::path key_file = KeyFileOfStart(config, folder);
  const AnnouncedAddresses announced = AnnounceAddresses(path, &config);
  const StopSignal stop;
  LeaveOutDamaged(
      path, config.cluster.has_remote_replay() ? 0 : config.replay.shards);
  const int64_t first_step =
      RewindToCheckpoint(path, config.task.action_repeat);
  const RolePlan plan{
      .config = config,
      .commands = commands,
      .task = task,
      .run_folder = path,
      .storage_folder = path,
      .config_file = folder.config_file(),
      .key_file = key_file,
      .began_ms = fmt::format("{:.0f}", 1e3 * BeginningOfRun(path))};
  fleet::FleetRun run{.config = config.fleet,
                      .seed = static_cast<uint64_t>(config.run.seed),
                      .roles = {},
                      .key_file = plan.key_file,
                      .progress = ProgressFields(config),
                      .curve_axis = {"learner", "updates", "frames"},
                      .curves = CurveFields(config)};
  fleet::ProcessorClaims claims;
  const fleet::CpuTopology topology = fleet::ReadCpuTopology();
  const std::vector<fleet::PlacedRole> placed =
      fleet::PlaceBesideOthers(topology, RoleRequests(config), &claims);
  std::fputs(fleet::PlacementTable(topology, placed).c_str(), stdout);
  std::printf("run folder: %s\n", path.c_str());
  std::fflush(stdout);
  for (const fleet::PlacedRole& role : placed) {
    run.roles.push_back(MakeRole(role, plan));
  }
  for (const fleet::RoleId& id : RemoteRoles(config)) {
    run.roles.push_back(MakeRole({.request = {.id = id}, .cpus = {}}, plan));
    run.roles.back().is_remote = true;
    run.roles.back().is_elastic = WaitsAlone(config, id);
  }
  if (config.has_actors()) {
    run.scalable.emplace("actor", ScalableActors(plan, placed, &folder));
  }
  if (config.cluster.has_hosts()) {
    run.hosts = HostsOf(config, commands, announced.join_endpoint, folder);
    std::printf("hosts join at %s\n", announced.join_endpoint.c_str());
    std::fflush(stdout);
  }
  fleet::RunCopy copy(
      config.fleet.copy_command, path,
      [path] {
        const auto newest = NewestCheckpoint(path);
        return newest ? newest->filename().string() : std::string();
      },
      folder.disk());
  run.copy = &copy;
  const Clock::TimePoint start = Clock::Real().Now();
  fleet::FleetStatus status;
  const fleet::RunResult result = fleet::RunFleet(run, stop, folder, status);
  const RunTotals totals = {
      .status = ToString(result.status),
      .reason = result.message.substr(0, result.message.find('\n')),
      .resumed_at = first_step,
      .wall_clock_s = ToSeconds(Clock::Real().Now() - start),
      .frames = status.Sum("actor", "frames"),
      .updates =
          status.Last("learner", "updates") - static_cast<double>(first_step),
      .samples_per_insert = status.Last("replay", "samples_per_insert")};
  const bool has_checkpoint = NewestCheckpoint(path).has_value();
  const bool has_failed = result.status == fleet::RunStatus::kFailed;
  // a batch system that ends the job does not wait for an evaluation, and
  // continues later
  const bool is_interrupted =
      config.cluster.has_hosts() && stop.is_termination();
  if (has_checkpoint && !has_failed && config.evaluation.enabled &&
      stop.count() < 2 && !is_interrupted) {
    EvaluateLastCheckpoint(plan, stop);
  }
  // the problem says enough of a run that failed before it had learned anything
  if (has_checkpoint || !has_failed) Summarize(plan, totals);
  for (const std::string& problem : result.problems) {
    std::fprintf(stderr, "fleet: %s\n", problem.c_str());
  }
  if (!result.ok()) std::fprintf(stderr, "%s\n", result.message.c_str());
  // all of it, with the last evaluation
  const bool is_copied = copy.Finish(FromSeconds(config.fleet.stop_timeout_s));
  if (result.is_mistake) return kExitConfig;
  // Kubernetes starts a launcher again unless it ends with 0
  if (config.cluster.backend == fleet::ClusterBackend::kKubernetes) {
    return IsOver(result.status, stop) ? 0 : 1;
  }
  return result.ok() && is_copied ? 0 : 1;
}

struct RenderOptions {
  std::string backend, folder;  // empty: nothing is rendered
};

int RenderFiles(const Invocation& invocation, const RenderOptions& options) {
  if (options.folder.empty()) {
    throw ConfigError("--render: want --to FOLDER");
  }
  // its jobs read the files of this host; those of a container are elsewhere
  const RunConfig& config = invocation.config();
  if (config.has_actors() && options.backend == "slurm") {
    CheckRun(config, invocation.registry.tasks);
  }
  std::fputs(Render(options.backend,
                    {.config = config,
                     .resolved_yaml = invocation.loaded.resolved_yaml,
                     .commands = invocation.commands,
                     .registry = invocation.registry,
                     .folder = std::filesystem::absolute(options.folder)})
                 .c_str(),
             stdout);
  return 0;
}

// Becomes the executable of --program, `EXECUTABLE fleet` with the other
// arguments: its registry may know tasks and workloads that this one does not.
// Returns if the command line has no --program. Throws IoError if the
// executable cannot be run.
std::optional<int> BecomeProgram(int argc, const char* const* argv) {
  constexpr std::string_view kOption = "--program";
  std::string executable;
  std::vector<std::string> words = {"", "fleet"};
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == kOption && i + 1 < argc) {
      executable = argv[++i];
    } else if (word.starts_with("--program=")) {
      executable = word.substr(kOption.size() + 1);
    } else {
      words.emplace_back(word);
    }
  }
  if (executable.empty()) return std::nullopt;
  words.front() = executable;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(executable.c_str(), arguments.data());
  throw IoError::FromErrno("run", executable, errno);
}

// The file of --config if --set changes it; empty otherwise.
std::string RecipeOf(int argc, const char* const* argv) {
  constexpr std::string_view kConfig = "--config";
  std::string file;
  bool is_changed = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == kConfig && i + 1 < argc) file = argv[i + 1];
    if (word.starts_with("--config=")) file = word.substr(kConfig.size() + 1);
    is_changed |= word.starts_with("--set");
  }
  return is_changed ? file : "";
}

// Throws ConfigError for a command among the options of a run: it would be
// ignored, and a training would start.
void CheckNoCommand(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    for (const auto& [command, form] :
         {std::pair("--status", "RUN"),
          std::pair("--report", "RUN ... [OPTIONS]"),
          std::pair("--logs", "RUN [ROLE]"), std::pair("--stop", "RUN"),
          std::pair("--scale", "RUN actors=NUMBER"),
          std::pair("--join", "RUN [OPTIONS]"), std::pair("--sweep", "FILE")}) {
      if (word.substr(0, word.find('=')) != command) continue;
      throw ConfigError(
          fmt::format("{}: want it alone: fleet {} {}", word, command, form));
    }
  }
}

// Checks the configuration before there is a folder. Returns the task of a run
// with actors.
agents::TaskSpec CheckBeforeStart(const Invocation& invocation) {
  const RunConfig& config = invocation.config();
  CheckKeys(config);
  CheckCluster(config);
  CheckHeartbeats(config);
  CheckBackend(config);
  if (!config.has_actors()) learner::CheckSameBatch(config.learner);
  fleet::CheckMetricsAddress(fleet::kMetricsKey, config.fleet.metrics_address);
  if (!config.has_actors()) return {};
  agents::TaskSpec task = [&] {
    try {
      return CheckRun(config, invocation.registry.tasks);
    } catch (const IoError& error) {
      // a disk that fails is no mistake, a wrong path is one
      for (const std::string& path :
           {config.task.mjcf, config.task.suite_folder}) {
        if (!path.empty() && !WhyMissing(path).empty()) {
          throw ConfigError(error.what());
        }
      }
      throw;
    }
  }();
  CheckAddresses(config);
  return task;
}

// Keeps the configuration without the changes by --set, for a report that names
// them. A recipe that cannot be read without them is none, nor is a pipe, which
// can be read only once.
void KeepRecipe(const Invocation& invocation, const std::string& file,
                const RunFolder& folder) {
  if (!std::filesystem::is_regular_file(file)) return;
  try {
    const auto recipe =
        LoadRunConfig(config::Document::FromFile(file), invocation.registry);
    AtomicWriteFile(folder.path() / "recipe.yaml", recipe.resolved_yaml);
  } catch (const Error& error) {
    spdlog::debug("no recipe.yaml: {}", error.what());
  }
}

// The run that a new start continues, since fleet.fetch_command keeps it;
// empty: none. Throws ConfigError, and IoError if the command fails.
std::string FindKeptRun(const RunConfig& config) {
  const std::string& command = config.fleet.fetch_command;
  const std::string& run = config.run.dir;
  if (command.empty()) return "";
  if (run.empty()) {
    throw ConfigError(
        "fleet.fetch_command: needs run.dir, the folder to bring back");
  }
  return fleet::FetchRun(command, std::filesystem::absolute(run)) ? run : "";
}

// Starts a run, or resumes the one in `given`; empty: none.
int Launch(const Invocation& invocation, const std::string& given,
           const std::string& recipe) {
  const agents::TaskSpec task = CheckBeforeStart(invocation);
  RunConfig config = invocation.config();
  const std::string resumed = given.empty() ? FindKeptRun(config) : given;
  if (!config.has_actors()) config.evaluation.enabled = false;
  const std::string& yaml = invocation.loaded.resolved_yaml;
  if (!resumed.empty()) {
    CheckSameRun(config, yaml, resumed);
    try {
      CheckResume(invocation, task, resumed);
    } catch (const RunIsComplete&) {
      CompleteAtLimit(invocation.registry, resumed);
      throw;
    }
  }
  RunFolder folder = resumed.empty() ? RunFolder::Create(config.run, yaml)
                                     : RunFolder::Resume(resumed, yaml);
  try {
    if (resumed.empty()) KeepRecipe(invocation, recipe, folder);
    if (config.has_actors()) {
      folder.SetConfig(
          KeepModel(config, invocation.registry.tasks, folder.path(), yaml));
    }
    return Run(std::move(config), invocation.commands, task, folder);
  } catch (...) {
    // unless the roles had ended before
    if (folder.status() == fleet::RunStatus::kRunning) folder.RestoreStatus();
    throw;
  }
}

struct FleetOptions {
  std::string resumed;  // folder of the run; empty: a new run
  RenderOptions render;
  std::string recipe;  // RecipeOf() the command line
  // of options that are here for --help: RunCommand() acts on them
  std::string ignored;
};

void AddOptions(config::CommandLine& command_line, FleetOptions* options) {
  command_line.AddConfigOption(
      "--resume", &options->resumed,
      "resume the run in this folder with its own configuration, changed by "
      "--set",
      [options](const std::string& given) {
        options->resumed = RunFolder::Find(given).string();
        return RunFolder::ConfigFile(options->resumed);
      });
  command_line.AddOption(
      "--program", &options->ignored,
      "executable that runs every role: a program of your own, with its tasks, "
      "agents and workloads");
  command_line.AddOption(
      "--render", &options->render.backend,
      "write the files by which a batch system runs the configuration, and "
      "start nothing: slurm, kubernetes or skypilot");
  command_line.AddOption("--to", &options->render.folder,
                         "new folder for the files of --render");
  AddRunControl(command_line);
  AddReport(command_line);
  AddJoin(command_line);
  command_line.AddOption(
      "--sweep", &options->ignored,
      "train the runs of this sweep: seeds, grids, random draws");
}

// Runs a command line that needs no configuration.
std::optional<int> RunCommand(int argc, const char* const* argv,
                              const Registry& registry,
                              const Commands& commands) {
  if (const auto code = BecomeProgram(argc, argv)) return code;
  if (const auto code = ControlRun(argc, argv)) return code;
  if (const auto code = ReportRuns(argc, argv, commands)) return code;
  if (const auto code = JoinRun(argc, argv, registry, commands)) return code;
  if (argc == 3 && std::string_view(argv[1]) == "--sweep") {
    return RunSweep(argv[2], registry, commands);
  }
  CheckNoCommand(argc, argv);
  return std::nullopt;
}

}  // namespace

Program FleetProgram() {
  const auto options = std::make_shared<FleetOptions>();
  return {.name = "fleet",
          .about =
              "Launches a run: replay, learner, actors and evaluator, on this "
              "machine and on the hosts of its cluster.",
          .add_options =
              [options](config::CommandLine& command_line) {
                AddOptions(command_line, options.get());
              },
          .run =
              [options](const Invocation& invocation) {
                const RenderOptions& render = options->render;
                if (!render.backend.empty())
                  return RenderFiles(invocation, render);
                if (!render.folder.empty()) {
                  throw ConfigError(
                      "--to: needs --render slurm, kubernetes or skypilot");
                }
                return Launch(invocation, options->resumed, options->recipe);
              },
          .announces_addresses = true,
          .run_without_config =
              [options](int argc, const char* const* argv,
                        const Registry& registry, const Commands& commands) {
                options->recipe = RecipeOf(argc, argv);
                return RunCommand(argc, argv, registry, commands);
              }};
}

}  // namespace replicant::programs
