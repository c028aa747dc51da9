#pragma once

#include "engine/nn/replica_context.h"
#include "replicator/calls/collective_ops.h"

namespace replicant::replicator {

using nn::ReplicaContext;

// One of several replicas while a step is built: primitives are placeholders
// (replicator/calls/collective_ops.h).
class GraphReplica : public ReplicaContext {
 public:
  GraphReplica(Graph& graph, ReplicaPlace place,
               const nn::ReplicaOptions& options = {})
      : ReplicaContext(graph, place.id, place.count, options), place_(place) {}

 protected:
  const ReplicaPlace& place() const { return place_; }

 private:
  Output DoAllReduce(Output x, ReduceOp op, CallSite site) override {
    return AddAllReduce(x, op, place_, site);
  }
  Output DoAllGather(Output x, CallSite site) override {
    return AddAllGather(x, place_, site);
  }
  Output DoReduceScatter(Output x, ReduceOp op, CallSite site) override {
    return AddReduceScatter(x, op, place_, site);
  }
  Output DoBroadcast(Output x, int source, CallSite site) override {
    return AddBroadcast(x, source, place_, site);
  }

  const ReplicaPlace place_;
};

}  // namespace replicant::replicator
