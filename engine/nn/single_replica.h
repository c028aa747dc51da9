#pragma once

#include "engine/nn/replica_context.h"

namespace replicant::nn {

// The only replica of its group. It waits for no other, and every primitive is
// the identity.
class SingleReplica : public ReplicaContext {
 public:
  explicit SingleReplica(Graph& graph, const ReplicaOptions& options = {})
      : ReplicaContext(graph, /*replica_id=*/0, /*num_replicas=*/1, options) {}

 private:
  Output DoAllReduce(Output x, ReduceOp op, CallSite site) override;
  Output DoAllGather(Output x, CallSite site) override;
  Output DoReduceScatter(Output x, ReduceOp op, CallSite site) override;
  Output DoBroadcast(Output x, int source, CallSite site) override;
};

}  // namespace replicant::nn
