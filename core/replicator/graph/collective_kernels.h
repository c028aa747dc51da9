#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/comm/collective_queue.h"
#include "core/kernels/backend.h"
#include "core/replicator/graph/call_waits.h"

namespace replicant::replicator {

// Makes the kernels of the calls (call_ops.h) of one replica's plan, for
// backends whose memory the host can reach.
class CollectiveKernels {
 public:
  // The reduction of a bucket: one kernel starts it and another waits for it.
  using SharedWork =
      std::shared_ptr<std::optional<comm::CollectiveQueue::Work>>;

  // The queue outlives the kernels.
  explicit CollectiveKernels(comm::CollectiveQueue* queue) : queue_(*queue) {}

  // What the kernels measure, for as long as it is held.
  const std::shared_ptr<CallWaits>& waits() const { return waits_; }

  // Null for a node that is no call.
  std::unique_ptr<kernels::Kernel> Make(const graph::Graph& graph,
                                        const graph::Node& node);

 private:
  comm::CollectiveQueue& queue_;
  std::shared_ptr<CallWaits> waits_ = std::make_shared<CallWaits>();
  std::map<int64_t, SharedWork> buckets_;
};

}  // namespace replicant::replicator
