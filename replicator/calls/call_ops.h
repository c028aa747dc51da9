#pragma once

#include <cstdint>
#include <vector>

#include "replicator/calls/collective_ops.h"
#include "replicator/comm/communicator.h"

// The ops of calls between replicas in a plan. LowerCollectives() adds them,
// CollectiveKernels runs them. Each op takes the previous call's token as its
// last input and returns a new token as its last output.
namespace replicant::replicator {

// The collective and its arguments.
struct CallSpec {
  comm::Collective::Kind kind = comm::Collective::Kind::kAllReduce;
  ReduceOp op = ReduceOp::kSum;
  int source = 0;
  // Factor on the result: 1/replicas for a mean.
  double factor = 1.0;
};

// The call that a placeholder stands for.
CallSpec CallOf(const graph::Node& placeholder);

struct BucketSpec {
  int64_t number = 0;  // unique in the plan
  CallSpec call;
  ReplicaRank rank;
  // `dtype` of the tensors, `gradient_format` of their elements in the bucket.
  DType dtype = DType::kF32;
  GradientFormat gradient_format;
  bool is_async = true;
};

// x, token -> result [shape], token.
Output AddCollectiveCall(Output x, Output token, const CallSpec& call,
                         const Shape& shape, CallSite site);
// xs, token -> all their elements concatenated [n] in the bucket's
// `gradient_format` format, being reduced; token. With top_k: one row per
// replica [replicas, 2 k] with the indices of its k elements and the bits of
// their values, tensor by tensor.
Output AddBucketStart(const std::vector<Output>& xs, Output token,
                      const BucketSpec& bucket, CallSite site);
// The result of AddBucketStart() -> the reduced tensors, one per shape.
Output AddBucketWait(Output started, const std::vector<Shape>& shapes,
                     const BucketSpec& bucket, CallSite site);

// The kind of a node; kNone if none of these functions added it.
enum class CallNode { kNone, kCall, kStart, kWait };
CallNode CallNodeOf(const graph::Node& node);
CallSpec CallSpecOf(const graph::Node& node);
BucketSpec BucketSpecOf(const graph::Node& node);

}  // namespace replicant::replicator
