// The learner: draws batches or images, trains, publishes parameters.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agents/task_spec.h"
#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/thread.h"
#include "core/comm/mpi_communicator.h"
#include "core/rpc/heartbeat_sender.h"
#include "env/tasks/suite.h"
#include "learner/learner.h"
#include "learner/workloads/d4pg/d4pg_workload.h"
#include "learner/workloads/registry.h"
#include "learner/workloads/resnet_workload.h"
#include "learner/workloads/sngan_workload.h"
#include "programs/program.h"
#include "programs/stop_order.h"

namespace replicant::learner {
namespace {

using programs::RunConfig;

agents::TaskSpec TaskOf(const RunConfig& config) {
  return agents::MakeTaskSpec(
      config.task, *env::MakeConfiguredEnvironment(
                       env::TaskRegistry(env::SuiteTasks()), config.task,
                       static_cast<uint64_t>(config.run.seed), 0));
}

D4pgWorkloadOptions OptionsOf(const RunConfig& config,
                              const agents::TaskSpec& task) {
  const replay::ShardConfig shard = config.replay.MakeShardConfig();
  return MakeD4pgWorkloadOptions(config.learner, config.agent, task,
                                 shard.tables[0].n_step.discount,
                                 config.run.seed);
}

replay::BatchReaderOptions ReaderOptionsOf(const RunConfig& config,
                                           int worker) {
  const agents::TaskSpec task = TaskOf(config);
  replay::BatchReaderOptions reader;
  reader.endpoints = {config.replay.bind};
  reader.name = fmt::format("learner-{}", worker);
  reader.shape = {.observation_bytes = task.observation_bytes(),
                  .action_bytes = task.action_bytes(),
                  .frame_bytes = task.frame_bytes()};
  reader.batch_size = config.learner.batch_size;
  // steps that use all processors would only be held up by other threads; they
  // decode for themselves
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const bool has_spare = replication.backend != "cpu" ||
                         replication.threads * replication.replicas <
                             CpuSet::OfThisThread().size();
  reader.decode_threads = has_spare ? 1 : 0;
  // each draws other items; the first one as if it were alone
  reader.seed = static_cast<uint64_t>(config.run.seed) +
                static_cast<uint64_t>(worker) * 0x9e3779b97f4a7c15U;
  return reader;
}

// The workload that the configuration names. `source` is D4PG's, in a process
// that draws batches.
std::unique_ptr<Workload> MakeWorkload(
    const RunConfig& config, std::unique_ptr<replicator::Replicator> replicator,
    TransitionSource* source) {
  const std::string& name = config.learner.workload;
  const auto seed = static_cast<uint64_t>(config.run.seed);
  if (name == "resnet50") {
    return std::make_unique<ResNetWorkload>(
        config.resnet50, config.learner.batch_size, config.learner.precision,
        seed, std::move(replicator));
  }
  if (name == "sngan") {
    return std::make_unique<SnganWorkload>(
        config.sngan, config.learner.batch_size, config.learner.precision, seed,
        std::move(replicator));
  }
  return std::make_unique<D4pgWorkload>(OptionsOf(config, TaskOf(config)),
                                        std::move(replicator), source);
}

// A process that works along with the learner, by the steps that it shares with
// it: a parameter server, or a further worker.
int RunBeside(const RunConfig& config, const rpc::RoleId& id,
              const replicator::ProcessPlace& place) {
  const StopSignal stop;
  rpc::HeartbeatSender heartbeat(
      rpc::HeartbeatSenderOptions::FromEnvironment({.id = id}));
  auto replicator = replicator::Replicator::Create(
      config.learner.replication, static_cast<uint64_t>(config.run.seed),
      place);
  std::optional<RemoteTransitions> transitions;
  if (!place.is_server && config.learner.workload == "d4pg") {
    transitions.emplace(ReaderOptionsOf(config, place.index));
  }
  const std::unique_ptr<Workload> workload = MakeWorkload(
      config, std::move(replicator), transitions ? &*transitions : nullptr);
  heartbeat.SetState(rpc::RoleState::kRunning);
  Follow(*workload, [&] { return stop.count() > 0 || heartbeat.StopOrder(); });
  heartbeat.SetState(rpc::RoleState::kDraining, "the training is over");
  return 0;
}

int Run(const RunConfig& config) {
  static_cast<void>(FindWorkload(config.learner.workload, "learner.workload"));
  const replicator::ReplicationConfig& replication = config.learner.replication;
  if (replication.strategy != replicator::Strategy::kBetweenGraph &&
      comm::NumMpiProcesses() > 1) {
    throw ConfigError(
        "learner.replication.strategy: mpirun has started several learners, "
        "which is for between_graph");
  }
  const StopSignal stop;
  auto replicator = replicator::Replicator::Create(
      replication, static_cast<uint64_t>(config.run.seed));
  if (replicator->process_id() > 0) {
    // under MPI
    Follow(*MakeWorkload(config, std::move(replicator), /*source=*/nullptr));
    return 0;
  }
  const auto heartbeat_options =
      rpc::HeartbeatSenderOptions::FromEnvironment({.id = {"learner", 0}});
  rpc::HeartbeatSender heartbeat(heartbeat_options);
  std::optional<RemoteTransitions> transitions;
  if (config.learner.workload == "d4pg") {
    transitions.emplace(ReaderOptionsOf(config, /*worker=*/0));
  }
  const std::unique_ptr<Workload> workload = MakeWorkload(
      config, std::move(replicator), transitions ? &*transitions : nullptr);

  Learner learner(
      config.learner, programs::RunFolderOf(config), workload.get(),
      {.should_stop = [&] { return stop.count() > 0 || heartbeat.StopOrder(); },
       .on_progress =
           [&](const Progress& progress) {
             heartbeat.SetGauge("updates", static_cast<double>(progress.step));
             heartbeat.SetGauge("updates_per_s", progress.steps_per_s);
             heartbeat.SetWaited(progress.wait_seconds, progress.wait_reason);
             heartbeat.SetGauge("frames", static_cast<double>(progress.frames));
             spdlog::info(
                 "step {}: {:.1f} steps/s, {:.0f} % of it waiting; {} frames",
                 progress.step, progress.steps_per_s,
                 100.0 * progress.wait_share, progress.frames);
           }});
  heartbeat.SetState(rpc::RoleState::kRunning);
  const EndReason reason = learner.Run();
  heartbeat.SetState(rpc::RoleState::kDraining, ToString(reason));
  // success means that the run is complete
  return reason == EndReason::kStopped
             ? programs::ExitCodeOfStop(heartbeat_options, heartbeat)
             : 0;
}

// What --role and --index ask for.
int RunRole(const RunConfig& config, const std::string& role,
            const std::string& index_text) {
  static_cast<void>(FindWorkload(config.learner.workload, "learner.workload"));
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const bool is_server = role == "server";
  if (!is_server && role != "worker" && role != "learner") {
    throw ConfigError(
        fmt::format("--role '{}': want learner, worker or server", role));
  }
  if (role != "learner" &&
      replication.strategy != replicator::Strategy::kParameterServer) {
    throw ConfigError(fmt::format(
        "--role {}: is for learner.replication.strategy parameter_server",
        role));
  }
  int64_t first = 0;
  int64_t last = 0;
  if (is_server) {
    last = static_cast<int64_t>(replication.servers.size()) - 1;
  } else if (role == "worker") {
    // the learner is the first one
    first = 1;
    last = replication.num_groups() - 1;
    if (last < first) {
      throw ConfigError(
          "--role worker: learner.replication has one worker, the learner");
    }
  }
  const int64_t index = programs::ParseInteger(
      "--index", index_text.empty() ? std::to_string(first) : index_text,
      {first, last});
  if (role == "learner") return Run(config);
  LogOptions log = config.log;
  log.role = fmt::format("{}-{}", role, index);
  InitLogging(log);
  replicator::ProcessPlace place{.is_server = is_server,
                                 .index = static_cast<int>(index)};
  if (is_server) {
    place.folder = programs::RunFolderOf(config) / "servers" / log.role;
  }
  return RunBeside(config, {role, static_cast<uint32_t>(index)}, place);
}

int Main(int argc, char** argv) {
  std::string role = "learner";
  std::string index;
  return programs::RunProgram(
      argc, argv,
      {.name = "learner",
       .about = "Trains on batches of a replay, or on images.",
       .add_options =
           [&](config::CommandLine& command_line) {
             command_line.AddOption(
                 "--role", &role,
                 "learner, or with strategy parameter_server also worker (a "
                 "further one) or server");
             command_line.AddOption("--index", &index,
                                    "which worker, from 1, or server, from 0");
           }},
      [&](const config::Loaded<RunConfig>& loaded) {
        return RunRole(loaded.config, role, index);
      });
}

}  // namespace
}  // namespace replicant::learner

int main(int argc, char** argv) { return replicant::learner::Main(argc, argv); }
