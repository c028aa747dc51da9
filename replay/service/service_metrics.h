#pragma once

#include <map>
#include <string>

#include "base/metrics/registry.h"
#include "base/rpc/server.h"
#include "replay/checkpoint/checkpoint_saver.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// Exposes a service's state as Prometheus metrics, "replicant_replay_...".
//
// Thread-safety: one thread at a time.
class ServiceMetrics {
 public:
  // `registry` outlives this object.
  explicit ServiceMetrics(metrics::Registry* registry) : registry_(registry) {}

  // `checkpoints` is null for a service without checkpoints.
  void Update(const ShardStatus& shard, const rpc::ServerMetrics& server,
              const CheckpointStatus* checkpoints);

 private:
  void Total(const std::string& name, const std::string& help, double total,
             const metrics::Labels& labels = {});
  void Value(const std::string& name, const std::string& help, double value,
             const metrics::Labels& labels = {});

  metrics::Registry* const registry_;
};

}  // namespace replicant::replay
