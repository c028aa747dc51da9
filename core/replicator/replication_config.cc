#include "core/replicator/replication_config.h"

namespace replicant::replicator {

ReplicationConfig ReplicationConfig::Read(config::Reader& reader) {
  ReplicationConfig c;
  reader.Field(
      "strategy", &c.strategy,
      {{"single", Strategy::kSingle},
       {"in_graph", Strategy::kInGraph},
       {"between_graph", Strategy::kBetweenGraph}},
      "how replicas work together: single is one replica, in_graph are "
      "several in one process, between_graph is one in each process "
      "that mpirun starts");
  reader.Field("replicas", &c.replicas, {1, 1024},
               "replicas that share each batch, in all processes");
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
  if (c.strategy == Strategy::kSingle && c.replicas > 1) {
    reader.Error("replicas", "single is one replica");
  }
  return c;
}

}  // namespace replicant::replicator
