#include "core/replicator/replication_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/check.h"

namespace replicant::replicator {
namespace {

// What only some strategies have, and how replicas are divided.
void CheckGroups(const ReplicationConfig& c, config::Reader& reader) {
  const ReplicationConfig defaults;
  const auto refuse_unless = [&](bool is_allowed, const char* key,
                                 bool is_default, const char* strategy) {
    if (is_allowed || is_default) return;
    reader.Error(key, fmt::format("is of strategy {}", strategy));
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
  const bool has_servers = c.strategy == Strategy::kParameterServer;
  refuse_unless(has_servers, "servers", c.servers == defaults.servers,
                "parameter_server");
  refuse_unless(has_servers, "replicas_per_group", c.replicas_per_group == 1,
                "parameter_server");
  refuse_unless(has_servers, "staleness", c.staleness == defaults.staleness,
                "parameter_server");
  if (has_servers) {
    check_division("replicas_per_group", c.replicas_per_group, "groups of");
  }
  const bool has_processes = c.strategy == Strategy::kBetweenGraph;
  refuse_unless(has_processes, "replicas_per_process",
                c.replicas_per_process == 1, "between_graph");
  if (has_processes) {
    check_division("replicas_per_process", c.replicas_per_process,
                   "processes of");
  }
}

}  // namespace

ReplicationConfig ReplicationConfig::Read(config::Reader& reader) {
  ReplicationConfig c;
  reader.Field(
      "strategy", &c.strategy,
      {{"single", Strategy::kSingle},
       {"in_graph", Strategy::kInGraph},
       {"between_graph", Strategy::kBetweenGraph},
       {"hogwild", Strategy::kHogwild},
       {"parameter_server", Strategy::kParameterServer}},
      "how replicas work together: single is one replica, in_graph are "
      "several in one process, between_graph is some in each process "
      "that mpirun starts; hogwild are several in one process, each with "
      "batches of its own, on the same variables without locks; "
      "parameter_server are groups of replicas, a process each, on variables "
      "that servers hold and update");
  reader.Field("replicas", &c.replicas, {1, 1024},
               "replicas in all processes together");
  reader.Field("backend", &c.backend,
               "what computes: cpu, cuda, or reference (slow, exact loops)");
  reader.Field("logical_devices", &c.logical_devices, {1, 64},
               "devices among which a model that is written for it divides its "
               "layers, of each replica; on the CPU groups of processors");
  reader.Field("threads", &c.threads, {1, 1024},
               "threads of one logical device of a replica on the CPU");
  reader.Field("accumulation_steps", &c.accumulation_steps, {1, 1 << 20},
               "batches whose gradients are added up for one update: as one "
               "batch so many times as large");
  reader.Field("wire", &c.wire, {{"f32", DType::kF32}, {"bf16", DType::kBF16}},
               "as what gradients travel between replicas: bf16 is half the "
               "bytes, and keeps 8 bits of each number");
  reader.Field("bucket_mib", &c.bucket_mib, {1, 1024},
               "MiB of gradients that replicas exchange at a time, while they "
               "compute the next ones");
  reader.Field("timeout_s", &c.timeout_s, {0.1, 36000.0},
               "seconds that replicas wait for one that does not come, as when "
               "the first one writes a checkpoint, before all end");
  reader.Field("replicas_per_process", &c.replicas_per_process, {1, 1024},
               "of between_graph: replicas in each process that mpirun starts");
  reader.Field("heartbeat_interval_s", &c.heartbeat_interval_s, {0.01, 60.0},
               "of between_graph: seconds between two signs of life that a "
               "process gives");
  reader.Field("heartbeat_timeout_s", &c.heartbeat_timeout_s, {0.0, 36000.0},
               "of between_graph: seconds of silence after which a process is "
               "given up and the others end; 0: nobody watches, and one that "
               "stands still is found after timeout_s");
  reader.Field("servers", &c.servers, {1, 64},
               "addresses of the parameter servers; each holds a part of the "
               "variables");
  reader.Field("replicas_per_group", &c.replicas_per_group, {1, 1024},
               "of parameter_server: replicas that make their steps together, "
               "in one process; the groups do not wait for each other");
  reader.Field("staleness", &c.staleness, {0, 1'000'000},
               "of parameter_server: how many updates by others there may be "
               "between those that a gradient was made with and its own; who "
               "would exceed it waits");
  reader.Field("server_checkpoint_interval_s", &c.server_checkpoint_interval_s,
               {0.1, 1e6},
               "seconds between checkpoints of a parameter server, from which "
               "it goes on if it is started again");
  CheckGroups(c, reader);
  if (c.strategy == Strategy::kHogwild ||
      c.strategy == Strategy::kParameterServer) {
    const auto refuse = [&](const char* key, bool is_default) {
      if (!is_default) {
        reader.Error(key, "is not for hogwild and parameter_server");
      }
    };
    refuse("accumulation_steps", c.accumulation_steps == 1);
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
  if (c.strategy == Strategy::kSingle && c.replicas > 1) {
    reader.Error("replicas", "single is one replica");
  }
  return c;
}

int ReplicationConfig::replicas_of_group() const {
  switch (strategy) {
    case Strategy::kHogwild:
      return 1;
    case Strategy::kParameterServer:
      return replicas_per_group;
    case Strategy::kSingle:
    case Strategy::kInGraph:
    case Strategy::kBetweenGraph:
      return replicas;
  }
  REPLICANT_CHECK(false, "Strategy {}", static_cast<int>(strategy));
}

}  // namespace replicant::replicator
