#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/graph/passes/passes.h"
#include "core/replicator/replica_context.h"

// What becomes of the placeholders of collective_ops.h: calls between the
// replicas, in one order.
namespace replicant::replicator {

struct LoweringOptions {
  // All-reduces of one kind are made together, as soon as so many bytes of
  // their inputs are there.
  size_t bucket_bytes = size_t{4} << 20;
  // Whether the plan computes on while a bucket is reduced.
  bool is_async = true;
};

// A program with calls in the place of its placeholders, each of which must be
// needed.
struct LoweredProgram {
  graph::Program program;
  // The calls in the order in which they are issued, as messages and
  // comparisons know them: "AllReduce mean of 3 tensors, f32[1000]".
  std::vector<std::string> calls;
};

// - All-reduces of one op and dtype, on one logical device, share a bucket
// while
//   its size allows, in the order in which their inputs are computed: gradients
//   of the last layers come first. None may wait for an input that another's
//   result leads to.
// - One that is larger than a bucket has one alone, which is neither packed nor
//   unpacked.
// - A bucket is issued (BucketStart, which packs it) right behind the last of
//   its inputs, and waited for (BucketWait, which unpacks) where the first of
//   its placeholders stood.
// - Everything else, and an all-reduce whose result is needed at once, is one
//   blocking call (CollectiveCall), without copies.
// - A token that runs from call to call keeps them in this order, whatever the
//   passes and the scheduler do.
LoweredProgram LowerCollectives(const graph::Program& program,
                                const LoweringOptions& options);

}  // namespace replicant::replicator
