#include "programs/run/check_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/rpc/group_key.h"
#include "base/rpc/socket.h"
#include "engine/kernels/backend.h"
#include "env/camera.h"
#include "fleet/metrics_page.h"
#include "programs/run/mix_prior.h"
#include "replicator/pjrt/pjrt_replicator.h"
#include "replicator/replicator.h"

namespace replicant::programs {
namespace {

// Throws ConfigError for an endpoint at which no process could listen.
void CheckForm(const std::string& key, const std::string& endpoint) {
  constexpr std::string_view kIpc = "ipc://";
  if (endpoint.starts_with("tcp://")) return;
  if (!endpoint.starts_with(kIpc)) {
    throw ConfigError(fmt::format(
        "{}: '{}': want auto, tcp://ADDRESS:PORT, ipc://FILE or ipc://@NAME",
        key, endpoint));
  }
  // a trial would leave a file behind; the service itself refuses one in use
  const std::filesystem::path file = endpoint.substr(kIpc.size());
  if (!endpoint.starts_with("ipc://@") && file.has_parent_path() &&
      !std::filesystem::is_directory(file.parent_path())) {
    throw ConfigError(fmt::format("{}: '{}': no folder {}", key, endpoint,
                                  file.parent_path().string()));
  }
}

// Throws ConfigError for a setting that would end the replay at every start.
void CheckReplayHere(const RunConfig& config) {
  constexpr const char* kMetrics = "replay.metrics_address";
  for (int64_t shard = 0; shard < config.replay.shards; ++shard) {
    const std::string address = config.replay.OfShard(shard).metrics_address;
    // port 0 takes a different port for each
    if (!address.empty() && !address.ends_with(":0") &&
        address == config.fleet.metrics_address) {
      throw ConfigError(fmt::format("{}: {} is also used by {}; choose another",
                                    kMetrics, address, fleet::kMetricsKey));
    }
    fleet::CheckMetricsAddress(kMetrics, address);
  }
  const std::filesystem::path& folder = config.replay.disk.folder;
  if (std::filesystem::exists(folder) &&
      !std::filesystem::is_directory(folder)) {
    throw ConfigError(
        fmt::format("replay.disk_folder: {} is not a folder", folder.string()));
  }
}

// Begins an episode: the observations of an environment from outside may differ
// from its description, which the first actor would find much later.
void CheckFirstObservation(env::Environment& environment) {
  const env::ObservationSpec& spec = environment.observation_spec();
  std::vector<double> state(static_cast<size_t>(spec.state_size()));
  std::vector<uint8_t> pixels(static_cast<size_t>(spec.pixels_size()));
  environment.Reset({.state = state, .pixels = pixels, .frame = {}});
}

// Throws ConfigError for a camera that the model does not have.
void CheckCamera(const char* key, const std::string& camera,
                 const env::Physics& physics) {
  try {
    env::FindCamera(physics, camera);
  } catch (const InvalidArgument& e) {
    throw ConfigError(fmt::format("{}: {}", key, e.what()));
  }
}

// The model of a task that is a MuJoCo simulation. Throws IoError, with the key
// that names a file or folder.
env::MjModelPtr LoadModelOf(const env::TaskConfig& task,
                            const env::TaskRegistry& tasks) {
  const std::string key = !task.mjcf.empty()           ? "task.mjcf: "
                          : !task.suite_folder.empty() ? "task.suite_folder: "
                                                       : "";
  try {
    return env::LoadConfiguredModel(tasks, task);
  } catch (const IoError& error) {
    throw IoError(key + error.what());
  }
}

// Makes environment 0, and checks what it is made of on the way.
std::unique_ptr<env::Environment> MakeEnvironmentOf(
    const RunConfig& config, const env::TaskRegistry& tasks) {
  const auto seed = static_cast<uint64_t>(config.run.seed);
  if (tasks.Find(config.task.name).make_environment) {
    auto environment =
        env::MakeConfiguredEnvironment(tasks, config.task, seed, 0);
    CheckFirstObservation(*environment);
    return environment;
  }
  const env::MjModelPtr model = LoadModelOf(config.task, tasks);
  if (config.task.has_pixels) {
    const env::Physics physics(env::CopyModel(*model), config.task.name);
    const env::PixelOptions& pixels = config.task.pixels;
    for (const env::CameraOptions& camera : pixels.Cameras()) {
      CheckCamera(
          pixels.cameras.empty() ? "task.pixels.camera" : "task.pixels.cameras",
          camera.camera, physics);
    }
  }
  return std::move(env::MakeConfiguredEnvironments(
      tasks, config.task, *model, seed, /*first_index=*/0, /*count=*/1)[0]);
}

}  // namespace

void CheckReplay(const replay::ReplayConfig& config, int64_t batch_size) {
  const replay::TableConfig table = SampledTable(config);
  if (batch_size <= table.max_size) return;
  throw ConfigError(
      fmt::format("learner.batch_size: {} is more than "
                  "replay.tables.{}.max_size = {}: the table can never hold "
                  "that many items",
                  batch_size, table.name, table.max_size));
}

agents::TaskSpec CheckRun(const RunConfig& config,
                          const env::TaskRegistry& tasks) {
  CheckReplay(config.replay, config.learner.batch_size);
  const auto environment = MakeEnvironmentOf(config, tasks);
  agents::TaskSpec task = agents::MakeTaskSpec(config.task, *environment);
  if (const std::string& camera = config.evaluation.video.camera;
      !camera.empty()) {
    CheckCamera("evaluation.video.camera", camera, environment->physics());
  }
  CheckPrior(config, task);
  config.MakeAgent()->Check(config.SpecOf(task));
  if (config.learner.parameter_bind.empty()) {
    throw ConfigError(
        "learner.parameter_bind: empty, but the actors need parameters");
  }
  return task;
}

void CheckAddresses(RunConfig config) {
  if (!config.cluster.has_remote_replay()) CheckReplayHere(config);
  std::vector<std::pair<std::string, std::string>> addresses;
  for (const PartAddress& address : AddressesOf(&config)) {
    const std::string& endpoint = *address.endpoint;
    // every part has another one
    if (endpoint == "auto") continue;
    if (address.is_elsewhere) continue;
    CheckForm(address.key, endpoint);
    if (!fleet::IsOfAnyPort(endpoint)) {
      addresses.emplace_back(address.key, endpoint);
      continue;
    }
    try {
      const fleet::PortClaim trial(endpoint);
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{}: {}", address.key, error.what()));
    }
  }
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto& [key, endpoint] = addresses[i];
    if (endpoint.ends_with(":0")) {
      throw ConfigError(
          fmt::format("{}: '{}' is not a port that the other roles would find; "
                      "allowed: a port, * for a free one, or auto",
                      key, endpoint));
    }
    const auto same = std::ranges::find(
        addresses, endpoint, &std::pair<std::string, std::string>::second);
    if (same < addresses.begin() + static_cast<std::ptrdiff_t>(i)) {
      throw ConfigError(fmt::format("{}: {} is also used by {}; choose another",
                                    key, endpoint, same->first));
    }
    if (!endpoint.starts_with("tcp://")) continue;
    rpc::ZmqContext context;
    // any pair will do: the run's own is not made yet
    const rpc::GroupKey pair = config.run.key_file.empty()
                                   ? rpc::GroupKey()
                                   : rpc::GroupKey(rpc::GenerateCurveKeyPair());
    const auto guard = pair.MakeGuard(context);
    try {
      rpc::ZmqSocket(context, rpc::SocketType::kRouter,
                     {.curve = pair.server_role()})
          .Bind(endpoint);
    } catch (const Error& error) {
      throw ConfigError(fmt::format("{}: {}", key, error.what()));
    }
  }
}

namespace {

// Throws ConfigError if other hosts could not run the learner's workers.
void CheckWorkers(const RunConfig& config) {
  const fleet::ClusterConfig& cluster = config.cluster;
  if (!cluster.has_remote_workers()) return;
  const replicator::ReplicationConfig& replication = config.learner.replication;
  const char* const key = cluster.num_worker_hosts() > 0
                              ? "cluster.hosts"
                              : "cluster.workers_on_hosts";
  if (replication.uses_mpi()) {
    throw ConfigError(
        fmt::format("{}: workers on other hosts, but mpirun starts those of "
                    "learner.replication.communicator mpi; allowed: tcp",
                    key));
  }
  if (replication.num_workers() == 1) {
    throw ConfigError(fmt::format(
        "{}: workers on other hosts, but learner.replication has one worker, "
        "the learner; hint: strategy between_graph with communicator tcp, or "
        "parameter_server, and more replicas",
        key));
  }
  if (replication.processes_per_group > 1) {
    throw ConfigError(fmt::format(
        "{}: workers on other hosts, but the processes of a group meet by a "
        "file (learner.replication.processes_per_group {}); allowed: 1",
        key, replication.processes_per_group));
  }
  if (const int64_t hosts = cluster.num_worker_hosts();
      hosts > 0 && hosts != replication.num_workers() - 1) {
    throw ConfigError(fmt::format(
        "cluster.hosts: {} of them have a worker, and learner.replication has "
        "{} besides the learner; want a host for each, or none",
        hosts, replication.num_workers() - 1));
  }
}

// Throws ConfigError if other hosts do not reach the part at its address.
void CheckReach(const PartAddress& address, const std::string& backend) {
  const std::string& endpoint = *address.endpoint;
  if (address.is_elsewhere && !address.is_told() &&
      (endpoint == "auto" || fleet::IsOfAnyPort(endpoint))) {
    throw ConfigError(fmt::format(
        "{}: '{}', but another host joins for it; want {}that "
        "host's tcp://HOST:PORT",
        address.key, endpoint, address.may_be_told ? "auto or " : ""));
  }
  if (endpoint == "auto") return;
  if (!endpoint.starts_with("tcp://") || endpoint.starts_with("tcp://127.") ||
      endpoint.starts_with("tcp://[::1]")) {
    throw ConfigError(fmt::format(
        "{}: other hosts do not reach '{}'; allowed under cluster.backend {}: "
        "auto, or tcp://ADDRESS:PORT of a network interface",
        address.key, endpoint, backend));
  }
}

}  // namespace

void CheckCluster(RunConfig config) {
  const fleet::ClusterConfig& cluster = config.cluster;
  if (!cluster.has_hosts()) return;
  const std::string backend = ToString(cluster.backend);
  if (!config.has_actors() && !cluster.has_remote_workers() &&
      !cluster.has_remote_servers()) {
    throw ConfigError(fmt::format(
        "cluster.backend: {}: other hosts run actors, workers and servers, and "
        "this run of workload {} has none there; allowed: local",
        backend, config.learner.workload));
  }
  if (config.run.key_file.empty()) {
    throw ConfigError(fmt::format(
        "run.key_file: empty, but cluster.backend {} needs keys; hint: auto, "
        "the default, makes a pair",
        backend));
  }
  if (cluster.has_remote_inference() &&
      config.actors.inference != actors::InferencePlace::kHost) {
    throw ConfigError(fmt::format(
        "{}: an inference server on another host, but actors.inference is "
        "actor; allowed: host",
        cluster.inference_on_host ? "cluster.inference_on_host"
                                  : "cluster.hosts"));
  }
  if (cluster.has_remote_servers() &&
      !config.learner.replication.strategy->has_servers) {
    throw ConfigError(fmt::format(
        "{}: parameter servers on other hosts, but "
        "learner.replication.strategy {} has none; allowed: parameter_server",
        cluster.servers_on_hosts ? "cluster.servers_on_hosts" : "cluster.hosts",
        config.learner.replication.strategy->name));
  }
  CheckWorkers(config);
  static_cast<void>(
      fleet::ResolveClusterAddress(cluster.address, cluster.hosts));
  const bool has_other_clients =
      cluster.has_remote_workers() || cluster.has_remote_servers();
  for (const PartAddress& address : AddressesOf(&config)) {
    const bool is_server = address.part.starts_with("server-");
    if (is_server ? has_other_clients : config.has_actors()) {
      CheckReach(address, backend);
    }
  }
  if (config.learner.replication.rendezvous !=
      replicator::ReplicationConfig::kAuto) {
    CheckReach({"rendezvous", "learner.replication.rendezvous",
                &config.learner.replication.rendezvous},
               backend);
  }
}

void CheckKeys(const RunConfig& config) {
  const auto read = [](const char* key, const auto& call) {
    try {
      call();
    } catch (const IoError& error) {
      throw ConfigError(fmt::format("{}: {}", key, error.what()));
    }
  };
  const std::string& run_key = config.run.key_file;
  if (run_key != "auto") {
    read("run.key_file", [&] { rpc::GroupKey::FromFile(run_key); });
  }
  if (config.replay.key_file.empty()) return;
  if (run_key.empty()) {
    throw ConfigError(
        "replay.key_file: the clients of a run without keys cannot reach a "
        "replay that has one; allowed with run.key_file \"\": empty");
  }
  read("replay.key_file", [&] { rpc::ReadKeyPair(config.replay.key_file); });
  read("replay.allowed_clients_file",
       [&] { rpc::ReadPublicKeys(config.replay.allowed_clients_file); });
}

// The learner loads the plugin: what is not it must not take the devices.
void CheckPlugin(const replicator::PjrtConfig& config) {
  if (!replicator::HasPjrt()) {
    throw ConfigError(
        "learner.replication.backend: this build has no PJRT; hint: "
        "REPLICANT_WITH_PJRT=1 scripts/setup, and configure again");
  }
  // a mere name is searched for when it is loaded
  const std::filesystem::path file = config.plugin;
  std::error_code ignored;
  if (file.has_parent_path() &&
      !std::filesystem::is_regular_file(file, ignored)) {
    throw ConfigError(fmt::format(
        "learner.replication.pjrt.plugin: {}: no such file", config.plugin));
  }
}

void CheckBackend(const RunConfig& config) {
  const replicator::ReplicationConfig& replication = config.learner.replication;
  if (replication.has_pjrt()) {
    CheckPlugin(replication.pjrt);
    return;
  }
  const std::string& backend = replication.backend;
  const std::vector<std::string> usable = kernels::BuiltBackends();
  if (std::ranges::find(usable, backend) != usable.end()) return;
  std::string why;
  try {
    kernels::MakeBackend(backend);
  } catch (const DeviceError& e) {
    why = fmt::format(": {}", e.what());
  } catch (const InvalidArgument&) {
    // there is no backend of this name
  }
  throw ConfigError(fmt::format(
      "learner.replication.backend: '{}' cannot run here{}; allowed: {}",
      backend, why, fmt::join(usable, ", ")));
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
