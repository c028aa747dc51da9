#include "core/replicator/input.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace replicant::replicator {

int64_t InputContext::PerReplicaBatchSize(int64_t global_batch_size,
                                          graph::CallSite site) const {
  if (global_batch_size < 1 || global_batch_size % num_replicas != 0) {
    throw InvalidArgument(
        fmt::format("{}: a global batch of {} cannot be divided evenly among "
                    "{} replicas",
                    site.ToString(), global_batch_size, num_replicas));
  }
  return global_batch_size / num_replicas;
}

}  // namespace replicant::replicator
