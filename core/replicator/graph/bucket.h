#pragma once

#include <cstddef>
#include <optional>

#include "core/comm/collective_queue.h"
#include "core/graph/graph.h"
#include "core/replicator/graph/host_operand.h"

namespace replicant::replicator {

// A bucket of tensors that are reduced together: one kernel packs the bucket
// and starts the reduction, another one waits for it.
struct Bucket {
  HostOperand packed;
  std::optional<comm::CollectiveQueue::Work> work = {};
};

inline size_t BytesOf(const graph::TensorType& type) {
  return static_cast<size_t>(type.shape.num_elements()) * DTypeSize(type.dtype);
}

}  // namespace replicant::replicator
