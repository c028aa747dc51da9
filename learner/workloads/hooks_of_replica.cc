#include "learner/workloads/hooks_of_replica.h"

#include <vector>

namespace replicant::learner {

using graph::Output;

nn::ReplicaHooks HooksOf(replicator::ReplicaContext& replica, int64_t rows) {
  const auto range = replica.Rows(rows);
  nn::ReplicaHooks hooks{
      .mean_gradients =
          [&replica](const std::vector<Output>& gradients) {
            return replica.MeanGradients(gradients);
          },
      .max = [&replica](Output x) { return replica.AllMax(x); },
      .num_logical_devices = replica.num_logical_devices(),
      .first_row = range.first_row,
      .row_offset = range.row_offset};
  if (replica.num_replicas() > 1) {
    hooks.gather = [&replica](Output x) { return replica.AllGather(x); };
  }
  return hooks;
}

}  // namespace replicant::learner
