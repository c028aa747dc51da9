#include "engine/nn/single_replica.h"

#include <cstdint>
#include <vector>

#include "engine/graph/ops/shape_ops.h"

namespace replicant::nn {

Output SingleReplica::DoAllReduce(Output x, ReduceOp /*op*/,
                                  CallSite /*site*/) {
  return x;
}

Output SingleReplica::DoAllGather(Output x, CallSite site) {
  std::vector<int64_t> dims = {1};
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    dims.push_back(x.shape()[axis]);
  }
  return graph::Reshape(x, dims, site);
}

Output SingleReplica::DoReduceScatter(Output x, ReduceOp /*op*/,
                                      CallSite /*site*/) {
  return x;
}

Output SingleReplica::DoBroadcast(Output x, int /*source*/, CallSite /*site*/) {
  return x;
}

}  // namespace replicant::nn
