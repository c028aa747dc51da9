#pragma once

#include <memory>

#include "core/comm/collective_queue.h"
#include "core/kernels/backend.h"
#include "core/replicator/graph/bucket.h"
#include "core/replicator/graph/call_waits.h"

// The kernels of a bucket whose replicas send only their largest elements
// (Wire::top_k): an all-gather of what each sends, which every replica sums in
// replica order. The first kernel keeps the residual of the unsent elements; no
// checkpoint holds it. Arguments as in collective_kernels.cc.
namespace replicant::replicator {

std::unique_ptr<kernels::Kernel> MakeTopKStart(comm::CollectiveQueue* queue,
                                               bool is_host_memory,
                                               std::shared_ptr<Bucket> bucket,
                                               const graph::Graph& graph,
                                               const graph::Node& node);
std::unique_ptr<kernels::Kernel> MakeTopKWait(comm::CollectiveQueue* queue,
                                              bool is_host_memory,
                                              WaitMeter meter,
                                              std::shared_ptr<Bucket> bucket,
                                              const graph::Node& node);

}  // namespace replicant::replicator
