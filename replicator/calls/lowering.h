#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/graph/passes/passes.h"

// Lowers the placeholders of collective_ops.h to calls between the replicas, in
// one order.
namespace replicant::replicator {

struct LoweringOptions {
  // All-reduces of one kind share a bucket, which is full once it holds this
  // many bytes.
  size_t bucket_bytes = size_t{4} << 20;
  // Whether the plan computes on while a bucket is reduced.
  bool is_async = true;
  // Whether all-reduces join buckets as they stand in the program, and buckets
  // are issued where they are waited for: for replicas that compute different
  // pieces of a step, and so in different orders.
  bool in_program_order = false;
};

// A program with calls in place of its placeholders. Every placeholder must be
// needed.
struct LoweredProgram {
  graph::Program program;
  // The calls in issue order, in the form that messages use: "AllReduce mean of
  // 3 tensors, f32[1000]".
  std::vector<std::string> calls;
  // The placeholders of each, by their numbers from 1 in the program.
  std::vector<std::vector<size_t>> members;
};

// - All-reduces of one op and dtype on one logical device share a bucket while
//   its size allows.
//   They join in the order in which their inputs are computed: gradients of the
//   last layers come first.
//   No input depends on the result of another all-reduce in the bucket.
// - An all-reduce larger than a bucket has its own, which is neither packed nor
//   unpacked.
// - A bucket is issued (BucketStart, which packs it) right after the last of
//   its inputs, and waited for (BucketWait, which unpacks) where the first of
//   its placeholders stood.
// - Everything else, and an all-reduce whose result is needed at once, is one
//   blocking call (CollectiveCall), without copies.
// - A token that runs from call to call keeps them in this order, whatever the
//   passes and the scheduler do.
LoweredProgram LowerCollectives(const graph::Program& program,
                                const LoweringOptions& options);

}  // namespace replicant::replicator
