#include "programs/check_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/kernels/backend.h"
#include "core/rpc/socket.h"
#include "env/camera.h"

namespace replicant::programs {

void CheckReplay(const replay::ReplayConfig& config, int64_t batch_size) {
  if (!config.key_file.empty()) {
    throw ConfigError(
        "replay.key_file: the learner and the actors of a run have no keys, so "
        "the service would refuse them; allowed in a run: empty; keys are for "
        "a service that runs alone");
  }
  if (config.tables.size() > 1) {
    std::vector<std::string> names;
    for (const auto& [name, table] : config.tables) names.push_back(name);
    throw ConfigError(fmt::format(
        "replay.tables: {}: the learner samples one table, and a table that "
        "nobody samples would stop the actors; allowed in a run: one table",
        fmt::join(names, ", ")));
  }
  for (const auto& [name, section] : config.tables) {
    if (batch_size <= section.table.max_size) continue;
    throw ConfigError(
        fmt::format("learner.batch_size: {} is more than "
                    "replay.tables.{}.max_size = {}: a batch of so many items "
                    "is never there",
                    batch_size, name, section.table.max_size));
  }
}

agents::TaskSpec CheckRun(const RunConfig& config,
                          const env::TaskRegistry& tasks) {
  CheckReplay(config.replay, config.learner.batch_size);
  const auto environment = env::MakeConfiguredEnvironment(
      tasks, config.task, static_cast<uint64_t>(config.run.seed), 0);
  agents::TaskSpec task = agents::MakeTaskSpec(config.task, *environment);
  if (const std::string& camera = config.evaluation.video.camera;
      !camera.empty()) {
    try {
      env::FindCamera(environment->physics(), camera);
    } catch (const InvalidArgument& e) {
      throw ConfigError(fmt::format("evaluation.video.camera: {}", e.what()));
    }
  }
  config.MakeAgent()->Check(config.SpecOf(task));
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
  if (config.learner.replication.strategy->has_servers) {
    for (const std::string& endpoint : config.learner.replication.servers) {
      addresses.emplace_back("learner.replication.servers", endpoint);
    }
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto& [key, endpoint] = addresses[i];
    if (endpoint.ends_with(":*") || endpoint.ends_with(":0")) {
      throw ConfigError(fmt::format(
          "{}: '{}' is a port that each start chooses anew, and the other "
          "roles would not find it; allowed: a port, or auto",
          key, endpoint));
    }
    const auto same = std::ranges::find(
        addresses, endpoint, &std::pair<std::string, std::string>::second);
    if (same < addresses.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw ConfigError(fmt::format("{}: {} is that of {}, too; want another",
                                    key, endpoint, same->first));
    }
    // a trial of an ipc path would leave its files behind; the service itself
    // refuses one in use
    if (!endpoint.starts_with("tcp://")) continue;
    rpc::ZmqContext context;
    try {
      rpc::ZmqSocket(context, rpc::SocketType::kRouter).Bind(endpoint);
    } catch (const Error& error) {
      throw ConfigError(fmt::format("{}: {}", key, error.what()));
    }
  }
}

void CheckBackend(const RunConfig& config) {
  const std::string& backend = config.learner.replication.backend;
  const std::vector<std::string> usable = kernels::BuiltBackends();
  if (std::ranges::find(usable, backend) != usable.end()) return;
  throw ConfigError(fmt::format(
      "learner.replication.backend: '{}' cannot run here; allowed: {}", backend,
      fmt::join(usable, ", ")));
}

void CheckHeartbeats(const RunConfig& config) {
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const double allowed = config.fleet.heartbeat_timeout_s;
  if (!replication.strategy->has_processes ||
      replication.heartbeat_timeout_s < allowed) {
    return;
  }
  throw ConfigError(fmt::format(
      "learner.replication.heartbeat_timeout_s: {} s is not less than "
      "fleet.heartbeat_timeout_s, {} s; the fleet would kill a silent learner "
      "before its processes can name the silent one; allowed: less, or 0 to "
      "turn the check off",
      replication.heartbeat_timeout_s, allowed));
}

}  // namespace replicant::programs
