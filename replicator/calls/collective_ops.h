#pragma once

#include "base/tensor/reduce_op.h"
#include "engine/graph/graph.h"

// The primitives as nodes of one replica's graph. They stand for calls between
// the replicas: no backend has a kernel for them, and LowerCollectives() puts
// the calls in their place once all replicas are built.
//
// Gradients take the sum of all replicas' losses as the loss, so that the mean
// of the replicas' gradients is the gradient of the mean of their losses:
//
//   y_r = sum_s x_s            dx_r = sum_s dy_s
//   y_r = max_s x_s            dx_r = sum_s dy_s, shared among the largest
//   y_r = (x_0, x_1, ...)      dx_r = row r of sum_s dy_s
//   y_r = row r of sum_s x_s   dx_r = (dy_0, dy_1, ...)
//   y_r = x_source             dx_r = sum_s dy_s at the source, else 0
//
// A product has no gradient, nor has a scattered min or max.
namespace replicant::replicator {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

struct ReplicaRank {
  int id = 0;
  int count = 1;
};

// GradientFormat format of the elements of an f32 sum or mean.
struct GradientFormat {
  bool operator==(const GradientFormat&) const = default;

  // kBF16: each replica's x is rounded, then summed in f32, and the sum is
  // rounded.
  DType dtype = DType::kF32;
  // If not 0, each replica sends only this fraction of every tensor's elements,
  // the largest, and adds the rest to its next x (replicator/comm/top_k.h).
  double top_k = 0.0;
};

// Arguments as in ReplicaContext, which checks them. `format` is for f32.
Output AddAllReduce(Output x, ReduceOp op, ReplicaRank rank, CallSite site,
                    GradientFormat format = {});
Output AddAllGather(Output x, ReplicaRank rank, CallSite site);
Output AddReduceScatter(Output x, ReduceOp op, ReplicaRank rank, CallSite site);
Output AddBroadcast(Output x, int source, ReplicaRank rank, CallSite site);

enum class Primitive {
  kNone,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kBroadcast
};
// The replica that the placeholder belongs to.
ReplicaRank RankOf(const graph::Node& placeholder);
// Which primitive the node stands for; kNone if it is not a placeholder.
Primitive PrimitiveOf(const graph::Node& node);
// The number format of a placeholder's elements.
GradientFormat FormatOf(const Graph& graph, const graph::Node& node);
// The reduction of a kAllReduce or kReduceScatter.
ReduceOp ReduceOpOf(const graph::Node& node);
// "AllReduce mean of f32[3]".
std::string Describe(const Graph& graph, const graph::Node& node);

}  // namespace replicant::replicator
