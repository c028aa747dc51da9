#pragma once

#include <memory>

#include "engine/kernels/backend.h"
#include "replicator/calls/bucket.h"
#include "replicator/calls/call_waits.h"
#include "replicator/comm/collective_queue.h"

// The kernels of a bucket whose replicas send only their largest elements
// (GradientFormat::top_k): an all-gather of what each sends, which every
// replica sums in replica order. The first kernel keeps the residual of the
// unsent elements; no checkpoint holds it. Arguments as in
// collective_kernels.cc.
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
