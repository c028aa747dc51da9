#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "engine/kernels/backend.h"
#include "replicator/calls/bucket.h"
#include "replicator/calls/call_waits.h"
#include "replicator/comm/collective_queue.h"

namespace replicant::replicator {

// Makes the kernels of the calls (call_ops.h) of one replica's plan. The calls
// read and write the tensors themselves where the host may touch the backend's
// memory, and staging buffers on the host elsewhere.
class CollectiveKernels {
 public:
  // The queue outlives the kernels.
  CollectiveKernels(comm::CollectiveQueue* queue, bool is_host_memory)
      : queue_(*queue), is_host_memory_(is_host_memory) {}

  // The times that the kernels measure, valid while the pointer is held.
  const std::shared_ptr<CallWaits>& waits() const { return waits_; }

  // Returns null for a node that is not a call.
  std::unique_ptr<kernels::Kernel> Make(const graph::Graph& graph,
                                        const graph::Node& node);

 private:
  comm::CollectiveQueue& queue_;
  const bool is_host_memory_;
  std::shared_ptr<CallWaits> waits_ = std::make_shared<CallWaits>();
  std::map<int64_t, std::shared_ptr<Bucket>> buckets_;
};

}  // namespace replicant::replicator
