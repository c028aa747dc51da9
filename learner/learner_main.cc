// The learner: draws batches, trains, publishes parameters.
#include <spdlog/spdlog.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "agents/task_spec.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/openmp.h"
#include "core/base/process.h"
#include "core/config/command_line.h"
#include "core/config/load.h"
#include "core/rpc/heartbeat_sender.h"
#include "env/tasks/suite.h"
#include "learner/learner.h"
#include "learner/workloads/d4pg/d4pg_workload.h"
#include "training/training_config.h"

namespace replicant::learner {
namespace {

using training::TrainingConfig;

int Run(const TrainingConfig& config) {
  const StopSignal stop;
  rpc::HeartbeatSender heartbeat(
      rpc::HeartbeatSenderOptions::FromEnvironment({.id = {"learner", 0}}));
  const agents::TaskSpec task = agents::MakeTaskSpec(
      config.task, *env::MakeConfiguredEnvironment(
                       env::TaskRegistry(env::SuiteTasks()), config.task,
                       static_cast<uint64_t>(config.run.seed), 0));
  replay::BatchReaderOptions reader;
  reader.endpoints = {config.replay.bind};
  reader.name = "learner";
  reader.shape = {.observation_bytes = task.observation_bytes(),
                  .action_bytes = task.action_bytes(),
                  .frame_bytes = task.frame_bytes()};
  reader.batch_size = config.learner.batch_size;
  reader.seed = static_cast<uint64_t>(config.run.seed);
  RemoteTransitions transitions(reader);
  const replay::ShardConfig shard = config.replay.MakeShardConfig();
  D4pgWorkload workload(
      MakeD4pgWorkloadOptions(config.learner, config.agent, task,
                              shard.tables[0].n_step.discount, config.run.seed),
      &transitions);

  std::filesystem::path folder = config.run.dir;
  if (folder.empty()) folder = std::filesystem::path("runs") / config.run.name;
  Learner learner(
      config.learner, folder, &workload,
      {.should_stop = [&] { return stop.count() > 0 || heartbeat.StopOrder(); },
       .on_progress =
           [&](const Progress& progress) {
             heartbeat.SetGauge("updates", static_cast<double>(progress.step));
             heartbeat.SetGauge("updates_per_s", progress.steps_per_s);
             spdlog::info("step {}: {:.1f} steps/s, {:.0f} % of it waiting",
                          progress.step, progress.steps_per_s,
                          100.0 * progress.wait_share);
           }});
  heartbeat.SetState(rpc::RoleState::kRunning);
  learner.Run();
  return 0;
}

int Main(int argc, char** argv) {
  config::CommandLine command_line("learner", "Trains on batches of a replay.");
  const config::Arguments arguments =
      command_line.Parse(argc, argv, config::Describe<TrainingConfig>());
  if (!arguments.text_to_print.empty()) {
    std::fputs(arguments.text_to_print.c_str(), stdout);
    return 0;
  }
  auto config = config::Load<TrainingConfig>(
                    config::Document::FromFile(arguments.config_file,
                                               arguments.overrides))
                    .config;
  if (config.learner.workload != "d4pg") {
    throw ConfigError("learner.workload: '" + config.learner.workload +
                      "' is not known; there is: d4pg");
  }
  config.log.role = "learner";
  InitLogging(config.log);
  return Run(config);
}

}  // namespace
}  // namespace replicant::learner

int main(int argc, char** argv) {
  try {
    replicant::UsePassiveOpenMp(argv);
    return replicant::learner::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "learner: %s\n", e.what());
    return 1;
  }
}
