#pragma once

#include <optional>

#include "engine/graph/graph.h"
#include "replicator/calls/host_operand.h"
#include "replicator/comm/collective_queue.h"

namespace replicant::replicator {

// A bucket of tensors that are reduced together: one kernel packs the bucket
// and starts the reduction, another one waits for it.
struct Bucket {
  HostOperand packed;
  std::optional<comm::CollectiveQueue::Work> work = {};
};

}  // namespace replicant::replicator
