#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/config/reader.h"

namespace replicant::fleet {

// How the hosts of a run are reached.
enum class ClusterBackend {
  kLocal,       // one host: the launcher's
  kSsh,         // the launcher starts an agent on each host
  kSlurm,       // array jobs of agents, which join the launcher's job
  kKubernetes,  // pods of agents, which join the launcher's pod
};
std::string ToString(ClusterBackend backend);

// An element of `cluster.hosts`.
struct HostConfig {
  std::string name;    // as ssh takes it
  int64_t actors = 0;  // 0: its processors divided by an actor's cores
  // Address of the replay shard on this host; empty: no shard.
  std::string shard_address;
  std::string shard_folder;  // checkpoints of the shard
  bool worker = false;       // whether it runs one of the learner's workers
  // Address of the parameter server on this host, and of the inference server;
  // empty: none.
  std::string server_address;
  std::string server_folder;  // variables that the server saves
  std::string inference_address;

  static HostConfig Read(config::Reader& reader);
};

// An element of `cluster.roles`: resources of one process of the role.
struct RoleResources {
  int64_t cores = 1;
  int64_t gpus = 0;
  int64_t memory_mb = 0;  // 0: not asked for
  std::string command;    // template with {command}; empty: the command itself
  bool has_pods = false;  // whether pods are made for the role
  std::string image;      // empty: kubernetes.image
  std::vector<std::string> node_selector;  // "LABEL=VALUE"
  std::string priority_class;              // empty: the cluster's default

  static RoleResources Read(config::Reader& reader, RoleResources defaults);
};

// Section `cluster.slurm`: settings of the rendered job scripts.
struct SlurmConfig {
  std::string partition;  // empty: the site's default
  std::string actor_partition;
  std::string account;
  std::string time_limit = "1-00:00:00";
  int64_t actor_tasks = 1;
  int64_t warning_s = 60;
  double idle_task_s = 60.0;         // 0: never
  std::vector<std::string> options;  // further #SBATCH lines

  static SlurmConfig Read(config::Reader& reader);
};

// Section `cluster.kubernetes`: settings of the rendered manifests.
struct KubernetesConfig {
  std::string image = "replicant:latest";
  std::string space = "default";  // the namespace
  int64_t actor_pods = 1;
  std::string storage_class;  // empty: the cluster's default
  std::string run_storage = "20Gi";
  std::string replay_storage = "50Gi";
  std::string queue;     // of Kueue; empty: none
  std::string topology;  // label of nodes; empty: anywhere
  int64_t user = 0;      // number of the user; 0: the image's

  static KubernetesConfig Read(config::Reader& reader);
};

// Section `cluster.skypilot`: settings of the rendered job group.
struct SkypilotConfig {
  std::string image = "replicant:latest";
  std::string infra;  // empty: SkyPilot chooses
  std::string accelerator = "H100";
  int64_t actor_nodes = 1;
  bool learner_spot = false;
  bool actor_spot = true;
  std::string run_storage;  // empty: the disk of the learner's node

  static SkypilotConfig Read(config::Reader& reader);
};

// Section `cluster`: the hosts that run the processes of a run. Launcher,
// learner and evaluator share one host, by default with everything but the
// actors, which run on any host that joins.
struct ClusterConfig {
  ClusterBackend backend = ClusterBackend::kLocal;
  std::string address = "auto";
  int64_t port = 0;  // 0: a free one
  int64_t local_actors = 0;
  bool replay_on_host = false;
  bool workers_on_hosts = false;
  bool servers_on_hosts = false;
  bool inference_on_host = false;
  std::string programs;  // folder of the programs on the other hosts
  double host_timeout_s = 60.0;
  double join_timeout_s = 600.0;
  std::vector<HostConfig> hosts;
  std::string ssh_command;
  std::map<std::string, RoleResources> roles;  // Read() fills in every role
  SlurmConfig slurm;
  KubernetesConfig kubernetes;
  SkypilotConfig skypilot;

  bool has_hosts() const { return backend != ClusterBackend::kLocal; }
  // The addresses that `hosts` have for a part of the run, without empty ones,
  // in order: &HostConfig::shard_address. None unless the backend is ssh.
  std::vector<std::string> AddressesOf(std::string HostConfig::*address) const;
  // Number of `hosts` with a worker; 0 unless the backend is ssh.
  int64_t num_worker_hosts() const;
  // Whether the part runs on hosts that join for it, instead of the launcher's:
  // the replay, the learner's workers, the parameter servers, the inference
  // server.
  bool has_remote_replay() const {
    return has_hosts() &&
           (replay_on_host || !AddressesOf(&HostConfig::shard_address).empty());
  }
  bool has_remote_workers() const {
    return has_hosts() && (workers_on_hosts || num_worker_hosts() > 0);
  }
  bool has_remote_servers() const {
    return has_hosts() && (servers_on_hosts ||
                           !AddressesOf(&HostConfig::server_address).empty());
  }
  bool has_remote_inference() const {
    return has_hosts() &&
           (inference_on_host ||
            !AddressesOf(&HostConfig::inference_address).empty());
  }

  static ClusterConfig Read(config::Reader& reader);
};

// Replaces every `from` in `text`, which is not empty, by `to`.
void ReplaceAll(const std::string& from, const std::string& to,
                std::string* text);

// Replaces the word {command} of a template by `words`, and {host} anywhere by
// `host`. A template without {command} gets the words at its end. Blanks
// separate the words of a template; there are no quotes.
std::vector<std::string> FillTemplate(const std::string& command_template,
                                      const std::vector<std::string>& words,
                                      const std::string& host = "");

// The numeric address of this host for other hosts, of IPv6 in brackets:
// `given`, or for "auto" the address from which this host reaches the first of
// `hosts` that it can resolve ("NAME" or "USER@NAME"), without one the address
// of the default route, and without that the first address of an interface that
// has a link, other than loopback; bridges last, those of IPv4 first. Throws
// ConfigError if there is no such address, or if `given` is not numeric.
std::string ResolveClusterAddress(const std::string& given,
                                  const std::vector<HostConfig>& hosts);

// The same for a part of the run on this host: the address from which this host
// reaches the launcher at `endpoint` ("tcp://10.0.0.2:7100"). Loopback if the
// launcher is reached there: all processes are then on this machine.
std::string AddressBeside(const std::string& endpoint);

}  // namespace replicant::fleet
