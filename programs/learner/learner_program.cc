#include "programs/learner/learner_program.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/disk_queue.h"
#include "base/error.h"
#include "base/exit_codes.h"
#include "base/file_lock.h"
#include "base/fs.h"
#include "base/process.h"
#include "base/rng.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "learner/checkpoint_folder.h"
#include "learner/learner.h"
#include "learner/workloads/agent/reader_options.h"
#include "programs/evaluator/evaluator_program.h"
#include "programs/learner/learner_alone.h"
#include "programs/learner/learner_report.h"
#include "programs/run/find_checkpoint.h"
#include "programs/run/launcher_place.h"
#include "programs/run/make_workload.h"
#include "programs/run/mix_prior.h"
#include "programs/run/role_endpoint.h"
#include "programs/run/step_shape.h"
#include "programs/run/stop_order.h"
#include "replay/client/batch_reader.h"
#include "replicator/comm/mpi_communicator.h"
#include "replicator/make_replicator.h"
#include "replicator/steps/replica_ranks.h"

namespace replicant::programs {
namespace {

using learner::EndReason;
using learner::Workload;

constexpr const char* kEvaluate = "--evaluate";
// Time for which a parameter server serves on after a signal that may have gone
// to every process of a batch job, the learner's too.
constexpr auto kServerStays = std::chrono::seconds(10);

struct LearnerOptions {
  std::string role;  // empty: learner, or the launcher's role
  std::string index;
  std::string rank;            // "1/2", of a group that may shrink; empty: none
  std::string checkpoint;      // to evaluate; empty for none
  std::string servers_folder;  // of a parameter server; empty: of the run
};

// Gives this process the secret of the run's rendezvous, unless its launcher
// has given another one.
void TakeRendezvousKey(const std::filesystem::path& run_folder) {
  const std::filesystem::path file = run_folder / kRendezvousKeyName;
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return;
  const std::string key = ReadFile(file, /*max_size_bytes=*/4096);
  ::setenv(replicator::kRendezvousKey, key.c_str(), /*overwrite=*/0);
}

replay::BatchReaderOptions ReaderOptionsOf(const Invocation& invocation,
                                           int worker) {
  const RunConfig& config = invocation.config();
  const agents::TaskSpec task = TaskOf(invocation);
  replay::BatchReaderOptions reader = learner::ReaderOptionsOf(config.learner);
  reader.endpoints = config.replay.Endpoints();
  reader.curve = ReplayClientRole(config);
  reader.name = fmt::format("learner-{}", worker);
  reader.shape = StepShapeOf(task);
  reader.table = config.sampled_table().name;
  reader.window = config.sampled_table().n_step.window;
  reader.batch_size = ActedRows(config);
  // each worker draws other items
  reader.seed =
      MemberSeed(static_cast<uint64_t>(config.run.seed), "learner", worker);
  return reader;
}

// How a worker finds the parameter servers; null for a strategy without them.
std::function<std::string(int server)> FindServers(
    const RunConfig& config, const fleet::HeartbeatSenderOptions& options,
    const fleet::HeartbeatSender* heartbeat) {
  const replicator::ReplicationConfig& replication = config.learner.replication;
  if (!replication.strategy->has_servers) return nullptr;
  std::vector<std::function<std::string()>> servers;
  for (size_t i = 0; i < replication.servers.size(); ++i) {
    servers.push_back(FindEndpoint({"server", static_cast<uint32_t>(i)},
                                   options, heartbeat, config));
  }
  return
      [servers](int server) { return servers[static_cast<size_t>(server)](); };
}

// Runs a process that takes part in the learner's steps: a parameter server, or
// a worker after the first.
int RunBeside(const Invocation& invocation, const fleet::RoleId& id,
              replicator::ProcessRank place) {
  RunConfig config = invocation.config();
  const StopSignal stop;
  const auto heartbeat_options =
      fleet::HeartbeatSenderOptions::FromEnvironment({.id = id});
  fleet::HeartbeatSender heartbeat(heartbeat_options);
  const auto port = place.is_server ? ChooseEndpoint(id, heartbeat_options,
                                                     &heartbeat, &config)
                                    : std::nullopt;
  if (!place.is_server) {
    place.find_server = FindServers(config, heartbeat_options, &heartbeat);
    place.should_stop = [&] {
      return stop.count() > 0 || heartbeat.StopOrder();
    };
  }
  auto replicator =
      replicator::MakeReplicator(config.learner.replication,
                                 static_cast<uint64_t>(config.run.seed), place);
  std::optional<replay::BatchReader> transitions;
  const replicator::ReplicationConfig& replication = config.learner.replication;
  // one that follows the first process of its group
  const bool makes_every_step =
      !place.is_server && (replication.strategy->has_processes ||
                           place.index % replication.processes_per_group != 0);
  if (!place.is_server && !makes_every_step && config.has_actors()) {
    transitions.emplace(ReaderOptionsOf(invocation, place.index));
  }
  const std::unique_ptr<Workload> workload = MakeWorkload(
      invocation, std::move(replicator), transitions ? &*transitions : nullptr);
  heartbeat.SetState(fleet::RoleState::kRunning);
  std::optional<Clock::TimePoint> stays_until;
  learner::Follow(*workload, [&] {
    // such a worker ends with that process, which would otherwise miss it
    if (makes_every_step) return false;
    if (heartbeat.StopOrder()) return true;
    if (stop.count() == 0) return false;
    if (!place.is_server || heartbeat_options.endpoint.empty()) return true;
    // the order comes once the learner has read the variables; the news of the
    // state fetch it
    const Clock::TimePoint now = Clock::Real().Now();
    if (!stays_until) {
      heartbeat.SetState(fleet::RoleState::kDraining, "until the learner ends");
      stays_until = now + kServerStays;
    }
    return now >= *stays_until;
  });
  workload->Stop();
  heartbeat.SetState(fleet::RoleState::kDraining, "the training is over");
  return 0;
}

// Evaluates the model of a checkpoint.
int Evaluate(const Invocation& invocation, const std::string& given) {
  const RunConfig& config = invocation.config();
  if (config.has_actors()) return EvaluatePolicy(invocation, given);
  const std::filesystem::path checkpoint = FindCheckpoint(kEvaluate, given);
  // one replica, with the rows and the device that the first one trains with
  const replicator::ReplicationConfig& replication = config.learner.replication;
  auto loaded = invocation.loaded;
  loaded.config.learner.batch_size /= replication.replicas_of_group();
  const auto workload =
      MakeWorkload({invocation.registry, invocation.commands, loaded},
                   replicator::MakeReplicator(
                       {.backend = replication.backend,
                        .pjrt = replication.pjrt,
                        .cuda_graphs = replication.cuda_graphs,
                        .threads = replication.threads,
                        .accumulation_steps = replication.accumulation_steps,
                        .devices = replication.devices},
                       static_cast<uint64_t>(config.run.seed)),
                   /*source=*/nullptr);
  const runtime::CheckpointInfo info =
      runtime::LoadCheckpoint(checkpoint, workload->variables());
  std::printf("checkpoint %s\nstep %lld\n", checkpoint.c_str(),
              static_cast<long long>(info.step));
  const Scalars scores = workload->Evaluate();
  if (scores.empty()) {
    throw ConfigError(fmt::format(
        "--evaluate: learner.workload {} has nothing to evaluate; resnet50 "
        "needs images.evaluation, sngan needs sngan.evaluation_features",
        config.learner.workload));
  }
  for (const auto& [name, value] : scores) {
    std::printf("%s %s\n", name.c_str(), fmt::format("{:.6g}", value).c_str());
  }
  return 0;
}

// Throws ConfigError if mpirun has started several learners that do not
// exchange anything.
void CheckLaunch(const replicator::ReplicationConfig& replication) {
  if (replication.uses_mpi() || comm::NumMpiProcesses() == 1) return;
  throw ConfigError(
      "learner.replication.strategy: mpirun has started several learners; "
      "allowed then: between_graph with communicator mpi");
}

int Run(const Invocation& invocation) {
  const RunConfig& config = invocation.config();
  CheckLaunch(config.learner.replication);
  const StopSignal stop;
  // set once this process is known to lead; steps call them
  std::function<std::string(int server)> find_server;
  std::function<bool()> should_stop;
  auto replicator = replicator::MakeReplicator(
      config.learner.replication, static_cast<uint64_t>(config.run.seed),
      {.find_server = [&](int server) { return find_server(server); },
       .should_stop = [&] { return should_stop(); }});
  if (replicator->process_id() > 0) {
    // under MPI
    learner::Follow(
        *MakeWorkload(invocation, std::move(replicator), /*source=*/nullptr));
    return 0;
  }
  const auto heartbeat_options =
      fleet::HeartbeatSenderOptions::FromEnvironment({.id = {"learner", 0}});
  const bool is_alone = heartbeat_options.endpoint.empty();
  // a fleet holds the lock for its learner
  std::optional<FileLock> lock;
  if (is_alone) lock.emplace(LockAlone(invocation));
  DiskQueue disk;
  LearnerReport report(heartbeat_options, config, &disk);
  fleet::HeartbeatSender& heartbeat = report.heartbeat();
  find_server = FindServers(config, heartbeat_options, &heartbeat);
  should_stop = [&] { return stop.count() > 0 || heartbeat.StopOrder(); };
  std::optional<replay::BatchReader> transitions;
  std::unique_ptr<replay::MixedSource> mixed;
  if (config.has_actors()) {
    transitions.emplace(ReaderOptionsOf(invocation, /*worker=*/0));
    mixed = MixPrior(config, TaskOf(invocation), &*transitions, &disk);
  }
  replay::BatchSource* const source =
      mixed         ? mixed.get()
      : transitions ? static_cast<replay::BatchSource*>(&*transitions)
                    : nullptr;
  const std::unique_ptr<Workload> workload =
      MakeWorkload(invocation, std::move(replicator), source);
  learner::Learner learner(
      config.learner, RunFolderOf(config), workload.get(),
      {.should_stop = should_stop,
       .on_step = [&](int64_t step,
                      double seconds) { report.SetStep(step, seconds); },
       .on_progress =
           [&](const learner::Progress& progress) {
             report.Show(progress, *workload);
           },
       .config_yaml = invocation.loaded.resolved_yaml},
      &Clock::Real(), &disk);
  const int64_t first_step = learner.step();
  report.Begin(first_step, learner.seconds());
  if (is_alone) BeginAlone(invocation);
  heartbeat.SetState(fleet::RoleState::kRunning);
  const Clock::TimePoint start = Clock::Real().Now();
  const EndReason reason = learner.Run();
  if (is_alone) {
    SummarizeAlone(invocation, reason, first_step, report.last(),
                   report.scalars(), ToSeconds(Clock::Real().Now() - start));
  }
  std::string end(ToString(reason));
  if (!learner.unsaved().empty()) {
    // a fleet names it, once, from the heartbeat
    spdlog::log(is_alone ? spdlog::level::err : spdlog::level::info, "{}",
                learner.unsaved());
    end += "; " + learner.unsaved();
  }
  heartbeat.SetState(fleet::RoleState::kDraining, end);
  // success means that the run is complete
  const int code = reason == EndReason::kStopped
                       ? ExitCodeOfStop(heartbeat_options, heartbeat)
                       : 0;
  return code == 0 && !learner.unsaved().empty() ? kExitUnsaved : code;
}

// The place of a process in a group that may have fewer than the configuration
// says.
struct GroupPlace {
  int rank = 0;
  int size = 1;
};

// Reads --rank, "RANK/SIZE".
GroupPlace ParseRank(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) {
    throw ConfigError(fmt::format("--rank '{}': want RANK/SIZE", text));
  }
  const int64_t size =
      ParseInteger("--rank: SIZE", text.substr(slash + 1), {1, 1024});
  const int64_t rank =
      ParseInteger("--rank: RANK", text.substr(0, slash), {0, size - 1});
  return {static_cast<int>(rank), static_cast<int>(size)};
}

// The configuration of a process in a group of this size.
config::Loaded<RunConfig> LoadedOfGroup(const Invocation& invocation,
                                        int size) {
  config::Loaded<RunConfig> loaded = invocation.loaded;
  learner::LearnerConfig& learner = loaded.config.learner;
  const int64_t batch_size = learner.batch_size;
  const int num_all = learner.replication.num_processes();
  learner = learner::LearnerOfProcesses(learner, size);
  if (size < num_all) {
    spdlog::warn(
        "{} of {} processes: {} replicas with {} rows of a step each ({} of {} "
        "in all), learning rates x {:.4g}",
        size, num_all, learner.replication.replicas,
        learner.batch_size / learner.replication.replicas, learner.batch_size,
        batch_size, learner.replication.learning_rate_scale);
  }
  return loaded;
}

// Runs a process of an elastic group. It ends with kExitPeerLost if another one
// is lost: the supervisor counts no failure of this one then.
int RunMember(const Invocation& invocation, const fleet::RoleId& id,
              const GroupPlace& place) {
  const config::Loaded<RunConfig> loaded =
      LoadedOfGroup(invocation, place.size);
  const Invocation own{.registry = invocation.registry,
                       .commands = invocation.commands,
                       .loaded = loaded};
  if (place.rank > 0) {
    LogOptions log = own.config().log;
    log.role = id.ToString();
    InitLogging(log);
  }
  try {
    if (place.rank == 0) return Run(own);
    return RunBeside(own, id, {.index = place.rank});
  } catch (const CommError& error) {
    std::fprintf(stderr, "%s: %s\n", id.ToString().c_str(), error.what());
    return kExitPeerLost;
  }
}

// Runs the role that --role and --index name, or the launcher of this process.
int RunRole(const Invocation& invocation, const LearnerOptions& options) {
  const RunConfig& config = invocation.config();
  const replicator::ReplicationConfig& replication = config.learner.replication;
  std::string role = options.role;
  std::string index_text = options.index;
  if (!config.has_actors()) learner::CheckSameBatch(config.learner);
  TakeRendezvousKey(RunFolderOf(config));
  if (role.empty()) {
    role = "learner";
    if (const auto place = PlaceOfLearner(replication)) {
      if (replication.is_elastic()) {
        return RunMember(invocation,
                         {place->index == 0 ? "learner" : "worker",
                          static_cast<uint32_t>(place->index)},
                         {place->index, place->num_workers});
      }
      const bool leads = place->role == "worker" && place->index == 0;
      if (!leads) {
        role = place->role;
        index_text = std::to_string(place->index);
      }
    }
  }
  const bool is_server = role == "server";
  if (!is_server && role != "worker" && role != "learner") {
    throw ConfigError(
        fmt::format("--role '{}': want learner, worker or server", role));
  }
  if (is_server && !replication.strategy->has_servers) {
    throw ConfigError(
        "--role server: needs learner.replication.strategy parameter_server");
  }
  int64_t first = 0;
  int64_t last = 0;
  if (is_server) {
    last = static_cast<int64_t>(replication.servers.size()) - 1;
  } else if (role == "worker") {
    // the learner is the first one
    first = 1;
    last = replication.num_workers() - 1;
    if (last < first) {
      throw ConfigError(
          "--role worker: learner.replication has one worker, the learner; "
          "hint: strategy parameter_server, or between_graph with communicator "
          "tcp, and more replicas");
    }
  }
  const int64_t index = ParseInteger(
      "--index", index_text.empty() ? std::to_string(first) : index_text,
      {first, last});
  if (role == "learner") {
    return options.rank.empty()
               ? Run(invocation)
               : RunMember(invocation, {role, 0}, ParseRank(options.rank));
  }
  const fleet::RoleId id = {role, static_cast<uint32_t>(index)};
  if (!options.rank.empty()) {
    return RunMember(invocation, id, ParseRank(options.rank));
  }
  LogOptions log = config.log;
  log.role = id.ToString();
  InitLogging(log);
  replicator::ProcessRank place{.is_server = is_server,
                                .index = static_cast<int>(index)};
  if (is_server) {
    const std::filesystem::path servers =
        options.servers_folder.empty()
            ? RunFolderOf(config) / "servers"
            : std::filesystem::path(options.servers_folder);
    place.folder = servers / log.role;
  }
  return RunBeside(invocation, id, place);
}

}  // namespace

Program LearnerProgram() {
  const auto options = std::make_shared<LearnerOptions>();
  return {
      .name = "learner",
      .about = "Trains a workload on batches of a replay or on images.",
      .add_options =
          [options](config::CommandLine& command_line) {
            command_line.AddOption(
                "--role", &options->role,
                "learner, the default without a launcher; with strategy "
                "parameter_server, or between_graph "
                "with communicator tcp, also worker (one after the first); "
                "with parameter_server also server");
            command_line.AddOption(
                "--index", &options->index,
                "index of the worker, from 1, or of the server, from 0");
            command_line.AddOption(
                "--rank", &options->rank,
                "RANK/SIZE, the place of this process in a group that has "
                "fewer processes now than the configuration says "
                "(learner.replication.min_processes)");
            command_line.AddOption(
                "--servers_folder", &options->servers_folder,
                "folder of the variables that parameter servers save; empty: "
                "servers in the run's folder");
            command_line.AddConfigOption(
                kEvaluate, &options->checkpoint,
                "folder of a run, whose newest checkpoint is evaluated, or of "
                "one checkpoint; the run's configuration applies",
                [](const std::string& given) {
                  return FindRun(kEvaluate, given) / "config.yaml";
                });
          },
      .run =
          [options](const Invocation& invocation) {
            if (!options->checkpoint.empty()) {
              return Evaluate(invocation, options->checkpoint);
            }
            config::Loaded<RunConfig> loaded = invocation.loaded;
            ResolveRendezvous(RunFolderOf(loaded.config),
                              &loaded.config.learner.replication);
            return RunRole({.registry = invocation.registry,
                            .commands = invocation.commands,
                            .loaded = loaded},
                           *options);
          }};
}

}  // namespace replicant::programs
