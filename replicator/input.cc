#include "replicator/input.h"

#include <fmt/format.h>

#include "base/error.h"

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

InputSpec OfOneReplica(const InputSpec& spec, int num_replicas) {
  if (num_replicas == 1) return spec;
  if (spec.shape.rank() == 0 || spec.shape[0] % num_replicas != 0) {
    throw InvalidArgument(fmt::format(
        "input '{}' {}: its rows cannot be divided among {} replicas",
        spec.name, spec.shape.ToString(), num_replicas));
  }
  InputSpec own = spec;
  own.shape = spec.shape.WithLeading(spec.shape[0] / num_replicas);
  return own;
}

}  // namespace replicant::replicator
