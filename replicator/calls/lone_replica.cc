#include "replicator/calls/lone_replica.h"

#include <cstdint>
#include <vector>

#include "engine/graph/ops/shape_ops.h"

namespace replicant::replicator {

Output LoneReplica::DoAllReduce(Output x, ReduceOp /*op*/, CallSite /*site*/) {
  return x;
}

Output LoneReplica::DoAllGather(Output x, CallSite site) {
  std::vector<int64_t> dims = {1};
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    dims.push_back(x.shape()[axis]);
  }
  return graph::Reshape(x, dims, site);
}

Output LoneReplica::DoReduceScatter(Output x, ReduceOp /*op*/,
                                    CallSite /*site*/) {
  return x;
}

Output LoneReplica::DoBroadcast(Output x, int /*source*/, CallSite /*site*/) {
  return x;
}

}  // namespace replicant::replicator
