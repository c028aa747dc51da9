#pragma once

#include "engine/nn/replica_context.h"
#include "replicator/calls/collective_ops.h"

namespace replicant::replicator {

using nn::ReplicaContext;

// One of several replicas while a step is built: primitives are placeholders
// (replicator/calls/collective_ops.h).
class GraphReplica : public ReplicaContext {
 public:
  GraphReplica(Graph& graph, ReplicaRank rank,
               const nn::ReplicaOptions& options = {})
      : ReplicaContext(graph, rank.id, rank.count, options), rank_(rank) {}

 protected:
  const ReplicaRank& rank() const { return rank_; }

 private:
  Output DoAllReduce(Output x, ReduceOp op, CallSite site) override {
    return AddAllReduce(x, op, rank_, site);
  }
  Output DoAllGather(Output x, CallSite site) override {
    return AddAllGather(x, rank_, site);
  }
  Output DoReduceScatter(Output x, ReduceOp op, CallSite site) override {
    return AddReduceScatter(x, op, rank_, site);
  }
  Output DoBroadcast(Output x, int source, CallSite site) override {
    return AddBroadcast(x, source, rank_, site);
  }

  const ReplicaRank rank_;
};

}  // namespace replicant::replicator
