#include "replicator/replication_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "engine/kernels/plan_cache.h"

namespace replicant::replicator {
namespace {

// Checks the keys that belong to some strategies only, and that the replicas
// divide evenly into groups and processes.
void CheckGroups(const ReplicationConfig& c, config::Reader& reader) {
  const ReplicationConfig defaults;
  const auto refuse_unless = [&](bool is_allowed, const char* key,
                                 bool is_default, const char* strategy) {
    if (is_allowed || is_default) return;
    reader.Error(key, fmt::format("belongs to strategy {}", strategy));
  };
  const auto check_division = [&](const char* key, int part, const char* what) {
    if (c.replicas % part == 0) return;
    std::vector<int> allowed;
    for (int i = 1; i <= c.replicas; ++i) {
      if (c.replicas % i == 0) allowed.push_back(i);
    }
    reader.Error(key,
                 fmt::format("{} replicas cannot be divided evenly into {} {}; "
                             "allowed: {}",
                             c.replicas, what, part, fmt::join(allowed, ", ")));
  };
  const bool has_servers = c.strategy->has_servers;
  // config.yaml of a run may hold the address as the default
  const std::vector<std::string> one_fixed = {"tcp://127.0.0.1:7003"};
  refuse_unless(has_servers, "servers",
                c.servers == defaults.servers || c.servers == one_fixed,
                "parameter_server");
  refuse_unless(has_servers, "replicas_per_group", c.replicas_per_group == 1,
                "parameter_server");
  refuse_unless(has_servers, "staleness", c.staleness == defaults.staleness,
                "parameter_server");
  for (const auto& [key, value] :
       {std::pair("processes_per_group", c.processes_per_group),
        std::pair("fetch_interval", c.fetch_interval),
        std::pair("push_interval", c.push_interval)}) {
    refuse_unless(has_servers, key, value == 1, "parameter_server");
  }
  if (has_servers) {
    check_division("replicas_per_group", c.replicas_per_group, "groups of");
    if (c.replicas_per_group % c.processes_per_group != 0) {
      reader.Error("processes_per_group",
                   fmt::format("a group of {} replicas cannot be divided "
                               "evenly among {} processes",
                               c.replicas_per_group, c.processes_per_group));
    }
  }
  const bool groups_meet = has_servers && c.processes_per_group > 1;
  const bool has_processes = c.strategy->has_processes;
  refuse_unless(has_processes, "replicas_per_process",
                c.replicas_per_process == 1, "between_graph");
  refuse_unless(has_processes, "communicator",
                c.communicator == defaults.communicator, "between_graph");
  refuse_unless((has_processes && !c.uses_mpi()) || groups_meet, "rendezvous",
                c.rendezvous == defaults.rendezvous,
                "between_graph with communicator tcp");
  if (groups_meet && c.rendezvous.starts_with("tcp://")) {
    reader.Error("rendezvous",
                 "the processes of a group of parameter_server meet by a file, "
                 "one for each group; allowed: auto, or a path");
  }
  if (has_processes) {
    check_division("replicas_per_process", c.replicas_per_process,
                   "processes of");
  }
  refuse_unless(has_processes && !c.uses_mpi(), "min_processes",
                c.min_processes == 0, "between_graph with communicator tcp");
  if (has_processes && c.min_processes > c.num_processes()) {
    reader.Error("min_processes",
                 fmt::format("{} is more than the {} processes that there are",
                             c.min_processes, c.num_processes()));
  }
}

// Reads the keys of between_graph and parameter_server.
void ReadGroups(config::Reader& reader, ReplicationConfig* c) {
  reader.Field("replicas_per_process", &c->replicas_per_process, {1, 1024},
               "between_graph: replicas in each process");
  reader.Field("communicator", &c->communicator,
               {{"mpi", ReplicationConfig::Communicator::kMpi},
                {"tcp", ReplicationConfig::Communicator::kTcp}},
               "between_graph: how processes reach each other. mpi: mpirun "
               "starts them. tcp: each is started by itself, or by the fleet");
  reader.Field(
      "rendezvous", &c->rendezvous,
      "between_graph with communicator tcp, and parameter_server with "
      "processes_per_group: where the processes meet. tcp://HOST:PORT: the "
      "first one listens there. auto: a file in the run's folder, for this "
      "host only; any other path: that file");
  reader.Field(
      "min_processes", &c->min_processes, {0, 1024},
      "between_graph with communicator tcp: minimum number of processes with "
      "which the group continues while others are lost; it grows again when "
      "they return. 0: all processes are needed");
  reader.Field("heartbeat_interval_s", &c->heartbeat_interval_s, {0.01, 60.0},
               "between_graph: seconds between two heartbeats of a process");
  reader.Field("heartbeat_timeout_s", &c->heartbeat_timeout_s, {0.0, 36000.0},
               "between_graph: seconds without a heartbeat after which a "
               "process counts as dead and the others end. 0 turns heartbeats "
               "off: a stalled process is then found after timeout_s");
  reader.Field(
      "servers", &c->servers, {1, 64},
      "parameter_server: addresses of the servers; auto: a socket of this "
      "host, "
      "with hosts that join a free port of cluster.address, and with "
      "cluster.servers_on_hosts one of the server's host. Each server holds a "
      "part of the variables");
  reader.Field("replicas_per_group", &c->replicas_per_group, {1, 1024},
               "parameter_server: replicas in each group, which make their "
               "steps together; groups do not wait for each other");
  reader.Field("processes_per_group", &c->processes_per_group, {1, 1024},
               "parameter_server: processes of each group; they communicate "
               "like processes of between_graph with communicator tcp");
  reader.Field("staleness", &c->staleness, {0, 1'000'000},
               "parameter_server: maximum number of updates by other workers "
               "between a gradient's pull and its push. A worker over the "
               "limit waits");
  reader.Field("fetch_interval", &c->fetch_interval, {1, 1 << 20},
               "parameter_server: updates of a worker between two pulls of the "
               "variables (n_fetch of Downpour SGD). In between it updates its "
               "own copy");
  reader.Field("push_interval", &c->push_interval, {1, 1 << 20},
               "parameter_server: updates of a worker whose gradients are "
               "added up and pushed together (n_push of Downpour SGD)");
  reader.Field("server_checkpoint_interval_s", &c->server_checkpoint_interval_s,
               {0.1, 1e6},
               "parameter_server: seconds between checkpoints of a server. A "
               "server that is started again continues from its newest one");
}

// Checks what backend pjrt cannot do, and the keys that are only its own.
void CheckPjrt(const ReplicationConfig& c, config::Reader& reader) {
  if (!c.has_pjrt()) {
    if (!c.pjrt.plugin.empty()) {
      reader.Error("pjrt.plugin", "belongs to backend pjrt");
    }
    if (!c.pjrt.options.empty()) {
      reader.Error("pjrt.options", "belongs to backend pjrt");
    }
    return;
  }
  if (c.pjrt.plugin.empty()) {
    reader.Error("backend",
                 "pjrt wants the file of a plugin; hint: set pjrt.plugin, for "
                 "a TPU to the libtpu.so of the package libtpu");
  }
  for (const std::string& option : c.pjrt.options) {
    if (option.find('=', 1) != std::string::npos) continue;
    reader.Error("pjrt.options",
                 fmt::format("'{}' is not a plugin option; allowed: NAME=VALUE",
                             option));
  }
  if (!c.strategy->has_pjrt) {
    reader.Error("backend",
                 fmt::format("pjrt is not for strategy {}: its replicas are "
                             "the devices of one process, which make every "
                             "step together; allowed: single, in_graph",
                             c.strategy->name));
  }
  if (c.top_k > 0.0) {
    reader.Error("top_k",
                 "is not for backend pjrt: devices reduce whole gradients");
  }
  if (c.logical_devices > 1) {
    reader.Error("logical_devices",
                 "is not for backend pjrt: each replica is one device");
  }
}

}  // namespace

CudaAutotuneConfig CudaAutotuneConfig::Read(config::Reader& reader) {
  CudaAutotuneConfig c;
  reader.Field("enabled", &c.is_enabled,
               "time cuDNN's and cuBLASLt's plans of each convolution and "
               "product when a step is compiled, and take the fastest. Timings "
               "differ between runs, so the choice and the last bits of "
               "results may differ too, unless the cache holds the choice");
  reader.Field("cache", &c.cache,
               "folder of the file that keeps the choices, tuned_plans.txt, "
               "which processes and runs share. Empty: "
               "$XDG_CACHE_HOME/replicant or ~/.cache/replicant");
  return c;
}

PjrtConfig PjrtConfig::Read(config::Reader& reader) {
  PjrtConfig c;
  reader.Field("plugin", &c.plugin,
               "file of the plugin: libtpu.so, xla_cuda_plugin.so");
  reader.Field("options", &c.options, {0, 64},
               "options of the plugin's client, NAME=VALUE each, as its vendor "
               "documents them");
  return c;
}

ReplicationConfig ReplicationConfig::Read(config::Reader& reader,
                                          const StrategyRegistry& strategies) {
  ReplicationConfig c;
  config::Names<const Strategy*> names;
  std::string doc = "how replicas work together";
  for (const Strategy* strategy : strategies.strategies()) {
    names.emplace_back(strategy->name, strategy);
    doc += fmt::format(". {}: {}", strategy->name, strategy->doc);
  }
  reader.Field("strategy", &c.strategy, names, doc);
  reader.Field("replicas", &c.replicas, {1, 1024},
               "number of replicas in all processes together");
  reader.Field("backend", &c.backend,
               "backend that computes: cpu, cuda, reference (slow, exact "
               "loops), or pjrt (XLA, by a plugin)");
  reader.Section("pjrt", &c.pjrt, "backend pjrt");
  reader.Field("cuda_graphs", &c.cuda_graphs,
               "backend cuda: a step is recorded once and launched as one CUDA "
               "graph. false: kernel by kernel");
  reader.Section("cuda_autotune", &c.cuda_autotune,
                 "backend cuda: choice of plans of NVIDIA's libraries");
  reader.Field("read_ahead", &c.read_ahead,
               "backend cuda: the next batch is taken and sent to the device "
               "while a step computes (strategies single, in_graph and "
               "between_graph)");
  reader.Field("logical_devices", &c.logical_devices, {1, 64},
               "logical devices of each replica. A model that supports them "
               "divides its layers among them; on the CPU each one is a group "
               "of processors");
  reader.Field("threads", &c.threads, {1, 1024},
               "CPU threads of each logical device");
  reader.Field("accumulation_steps", &c.accumulation_steps, {1, 1 << 20},
               "batches per update. Their gradients are added, so that the "
               "update equals one with a batch as large as all of them");
  reader.Field("wire", &c.gradient_format,
               {{"f32", DType::kF32}, {"bf16", DType::kBF16}},
               "number format of gradients between replicas. bf16 halves the "
               "bytes and keeps 8 significant bits");
  reader.Field("top_k", &c.top_k, {0.0, 1.0},
               "share of each gradient's elements that a replica sends, "
               "largest magnitudes first. It adds the others to its next "
               "gradient. 0: all are sent");
  reader.Field("bucket_mib", &c.bucket_mib, {1, 1024},
               "bucket size in MiB: gradients are reduced in buckets of this "
               "size during the backward pass");
  reader.Field("devices", &c.devices, {0, 1023}, {0, 1024},
               "backend cuda: devices of the replicas of each host, in turn; "
               "empty: replica i of a host takes device i. [0]: all on one");
  reader.Field("collectives", &c.collectives,
               {{"device", Collectives::kDevice}, {"host", Collectives::kHost}},
               "backend cuda: where replicas exchange tensors. device: by "
               "NCCL, or by a kernel if one process has all of them on one "
               "device. host: through host memory");
  reader.Field("timeout_s", &c.timeout_s, {0.1, 36000.0},
               "seconds before a collective fails because a replica is "
               "missing, which ends the run. Must be longer than the first "
               "process takes to write a checkpoint");
  ReadGroups(reader, &c);
  CheckGroups(c, reader);
  CheckPjrt(c, reader);
  const Strategy& strategy = *c.strategy;
  if (!strategy.is_synchronous) {
    // replicas of a program's own strategy may have variables on devices
    const bool is_built_in = strategy.make == nullptr;
    if (c.backend == "cuda" && is_built_in) {
      reader.Error("backend",
                   fmt::format("cuda is not for strategy {}, whose variables "
                               "are in host memory; allowed: cpu",
                               strategy.name));
    }
    const auto refuse = [&](const char* key, bool is_default) {
      if (!is_default) {
        reader.Error(key, fmt::format("is not for {}: its replicas do not make "
                                      "every step together",
                                      strategy.name));
      }
    };
    refuse("top_k", c.top_k == 0.0);
    refuse("wire", c.gradient_format == DType::kF32 || strategy.has_servers ||
                       !is_built_in);
    refuse("logical_devices", c.logical_devices == 1);
  }
  if (c.heartbeat_timeout_s > 0.0 &&
      c.heartbeat_timeout_s < 4.0 * c.heartbeat_interval_s) {
    reader.Error(
        "heartbeat_timeout_s",
        fmt::format("must be 0 or >= 4 heartbeat_interval_s = {}, or a "
                    "late sign of life would end the run",
                    4.0 * c.heartbeat_interval_s));
  }
  if (c.top_k > 0.0 && c.gradient_format != DType::kF32) {
    reader.Error("top_k", "sends f32; hint: wire: f32");
  }
  if (strategy.has_one_replica && c.replicas > 1) {
    reader.Error("replicas", fmt::format("{} is one replica", strategy.name));
  }
  return c;
}

std::shared_ptr<kernels::PlanCache> ReplicationConfig::MakePlanCache() const {
  if (backend != "cuda" || !cuda_autotune.is_enabled) return nullptr;
  return std::make_shared<kernels::PlanCache>(
      cuda_autotune.cache.empty() ? kernels::PlanCache::DefaultFolder()
                                  : std::filesystem::path(cuda_autotune.cache));
}

int ReplicationConfig::DeviceOf(int number) const {
  if (devices.empty()) return number;
  return devices[static_cast<size_t>(number) % devices.size()];
}

int ReplicationConfig::num_processes() const {
  return strategy->has_processes ? replicas / replicas_per_process : 1;
}

int ReplicationConfig::num_workers() const {
  if (strategy->has_servers) return num_groups() * processes_per_group;
  return uses_mpi() ? 1 : num_processes();
}

int ReplicationConfig::replicas_of_group() const {
  return strategy->replicas_of_group(*this);
}

}  // namespace replicant::replicator
