#include "programs/check_run.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "agents/d4pg/distribution.h"
#include "agents/d4pg/networks.h"
#include "core/base/error.h"
#include "core/rpc/socket.h"
#include "env/camera.h"
#include "env/tasks/suite.h"

namespace replicant::programs {

bool HasActors(const RunConfig& config) {
  const std::string& workload = config.learner.workload;
  return workload != "resnet50" && workload != "sngan";
}

agents::TaskSpec CheckRun(const RunConfig& config) {
  if (config.learner.workload != "d4pg") {
    throw ConfigError(
        fmt::format("learner.workload: '{}' is none of d4pg, resnet50, sngan",
                    config.learner.workload));
  }
  const auto environment = env::MakeConfiguredEnvironment(
      env::TaskRegistry(env::SuiteTasks()), config.task,
      static_cast<uint64_t>(config.run.seed), 0);
  agents::TaskSpec task = agents::MakeTaskSpec(config.task, *environment);
  if (const std::string& camera = config.evaluation.video.camera;
      !camera.empty()) {
    try {
      env::FindCamera(environment->physics(), camera);
    } catch (const InvalidArgument& e) {
      throw ConfigError(fmt::format("evaluation.video.camera: {}", e.what()));
    }
  }
  agents::d4pg::CheckSpec(
      config.agent.networks,
      {.observation = task.observation, .action_size = task.action_size()});
  const replay::ShardConfig shard = config.replay.MakeShardConfig();
  agents::d4pg::MakeSupport(config.agent.distribution,
                            shard.tables[0].n_step.discount,
                            task.largest_reward);
  if (config.learner.parameter_bind.empty()) {
    throw ConfigError(
        "learner.parameter_bind: empty, but the actors need parameters");
  }
  return task;
}

void CheckAddresses(const RunConfig& config) {
  std::vector<std::pair<std::string, std::string>> addresses = {
      {"replay.bind", config.replay.bind},
      {"learner.parameter_bind", config.learner.parameter_bind}};
  if (config.learner.replication.strategy ==
      replicator::Strategy::kParameterServer) {
    for (const std::string& endpoint : config.learner.replication.servers) {
      addresses.emplace_back("learner.replication.servers", endpoint);
    }
  }
  for (const auto& [key, endpoint] : addresses) {
    // whoever binds an ipc address takes it from the one before; where there
    // are keys, the service judges
    if (!endpoint.starts_with("tcp://") || !config.replay.key_file.empty()) {
      continue;
    }
    rpc::ZmqContext context;
    try {
      rpc::ZmqSocket(context, rpc::SocketType::kRouter).Bind(endpoint);
    } catch (const Error& error) {
      throw ConfigError(fmt::format("{}: {}", key, error.what()));
    }
  }
}

void CheckHeartbeats(const RunConfig& config) {
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const double allowed = config.fleet.heartbeat_timeout_s;
  if (replication.strategy != replicator::Strategy::kBetweenGraph ||
      replication.heartbeat_timeout_s < allowed) {
    return;
  }
  throw ConfigError(fmt::format(
      "learner.replication.heartbeat_timeout_s: {} s is not less than "
      "fleet.heartbeat_timeout_s, {} s, after which the fleet kills a silent "
      "learner without a word of which process it was; allowed: less, or 0 for "
      "no watching",
      replication.heartbeat_timeout_s, allowed));
}

}  // namespace replicant::programs
