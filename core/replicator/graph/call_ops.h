#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/communicator.h"
#include "core/replicator/graph/collective_ops.h"
#include "core/replicator/replica_context.h"

// The ops that calls between replicas are made of in a plan; LowerCollectives()
// adds them, CollectiveKernels runs them. Each takes the token of the call
// before it as its last input and gives one as its last output.
namespace replicant::replicator {

// What is called.
struct CallSpec {
  comm::Collective::Kind kind = comm::Collective::Kind::kAllReduce;
  comm::ReduceOp op = comm::ReduceOp::kSum;
  int source = 0;
  // The result is multiplied by it: 1/replicas for a mean.
  double factor = 1.0;
};

// The call that a placeholder stands for.
CallSpec CallOf(const graph::Node& placeholder);

struct BucketSpec {
  int64_t number = 0;  // unique in the plan
  CallSpec call;
  ReplicaPlace place;
  // Of the tensors, and of their elements in the bucket.
  DType dtype = DType::kF32;
  Wire wire;
  bool is_async = true;
};

// x, token -> result [shape], token.
Output AddCollectiveCall(Output x, Output token, const CallSpec& call,
                         const Shape& shape, CallSite site);
// xs, token -> all their elements one after the other [n] as the bucket's
// `wire`, under way, token. With top_k: the row of every replica
// [replicas, 2 k], the indices of its k elements and the bits of their values,
// tensor by tensor.
Output AddBucketStart(const std::vector<Output>& xs, Output token,
                      const BucketSpec& bucket, CallSite site);
// What AddBucketStart() gave -> the reduced tensors, one for each shape.
Output AddBucketWait(Output started, const std::vector<Shape>& shapes,
                     const BucketSpec& bucket, CallSite site);

// What a node holds that one of these added.
enum class CallNode { kNone, kCall, kStart, kWait };
CallNode CallNodeOf(const graph::Node& node);
CallSpec CallSpecOf(const graph::Node& node);
BucketSpec BucketSpecOf(const graph::Node& node);

}  // namespace replicant::replicator
