#include "core/replicator/replication_config.h"

namespace replicant::replicator {

ReplicationConfig ReplicationConfig::Read(config::Reader& reader) {
  ReplicationConfig c;
  reader.Field("strategy", &c.strategy, {{"single", Strategy::kSingle}},
               "how replicas work together; single is one replica");
  reader.Field("backend", &c.backend,
               "what computes: cpu, cuda, or reference (slow, exact loops)");
  reader.Field("threads", &c.threads, {1, 1024},
               "threads of one replica on the CPU");
  return c;
}

}  // namespace replicant::replicator
