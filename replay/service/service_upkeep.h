#pragma once

#include <optional>

#include "base/clock.h"
#include "base/metrics/exposer.h"
#include "base/metrics/registry.h"
#include "base/rpc/server.h"
#include "replay/checkpoint/checkpoint_saver.h"
#include "replay/service/replay_config.h"
#include "replay/service/service_metrics.h"
#include "replay/table/shard.h"

namespace replicant::replay {

// Exposes the metrics of a running service and starts a checkpoint every
// checkpoint_interval_s.
//
// Thread-safety: one thread at a time.
class ServiceUpkeep {
 public:
  // Listens at config.metrics_address, unless that is empty. Throws what
  // metrics::Exposer does. `server` and `saver` outlive this object; `saver` is
  // null for a service without checkpoints.
  ServiceUpkeep(const ReplayConfig& config, const rpc::Server* server,
                CheckpointSaver* saver);

  // Updates the metrics from `status` and other sources, and starts a
  // checkpoint that is due. Returns the longest wait until the next call.
  Clock::Duration Run(const ShardStatus& status);

 private:
  const rpc::Server* const server_;
  CheckpointSaver* const saver_;
  metrics::Registry registry_;
  std::optional<metrics::Exposer> exposer_;
  ServiceMetrics metrics_{&registry_};
  const Clock::Duration interval_;
  std::optional<Clock::TimePoint> next_checkpoint_;  // none: at the end only
};

}  // namespace replicant::replay
