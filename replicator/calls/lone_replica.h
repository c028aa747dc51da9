#pragma once

#include "replicator/replica_context.h"

namespace replicant::replicator {

// The only replica of its group. It waits for no other, and every primitive is
// the identity.
class LoneReplica : public ReplicaContext {
 public:
  explicit LoneReplica(Graph& graph)
      : ReplicaContext(graph, /*replica_id=*/0, /*num_replicas=*/1) {}

 private:
  Output DoAllReduce(Output x, ReduceOp op, CallSite site) override;
  Output DoAllGather(Output x, CallSite site) override;
  Output DoReduceScatter(Output x, ReduceOp op, CallSite site) override;
  Output DoBroadcast(Output x, int source, CallSite site) override;
};

}  // namespace replicant::replicator
