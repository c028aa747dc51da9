#include "replicator/calls/lowering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "replicator/calls/collective_ops.h"

namespace replicant::replicator {
namespace {

using ::testing::ElementsAre;

constexpr ReplicaRank kRank{.id = 0, .count = 2};

// Where the node of this op, the `nth` of them, stands; -1 if it does not.
int64_t PositionOf(const Graph& graph, std::string_view op, int nth = 0) {
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->name == op && nth-- == 0) return node.id;
  }
  return -1;
}

// Three matrices one after the other; the gradient of the last is there first.
struct Chain {
  explicit Chain(Graph& graph) {
    Output x = graph.Input("x", DType::kF32, Shape({4, 8}));
    std::vector<Output> weights;
    for (const char* name : {"a", "b", "c"}) {
      weights.push_back(graph.Read(
          graph.AddVariable({.name = name, .shape = Shape({8, 8})})));
      x = graph::Tanh(graph::MatMul(x, weights.back()));
    }
    loss = graph::ReduceMean(x);
    gradients = graph::Gradients(loss, weights);
  }

  std::vector<Output> Reduce() const {
    std::vector<Output> reduced;
    for (const Output& gradient : gradients) {
      reduced.push_back(
          AddAllReduce(gradient, ReduceOp::kMean, kRank, CallSite::Here()));
    }
    return reduced;
  }

  Output loss;
  std::vector<Output> gradients;
};

graph::Program ProgramOf(const Graph& graph, const std::vector<Output>& out) {
  return graph::ExtractProgram(graph, out, {});
}

TEST(LoweringTest, GradientsShareABucketUpToItsSize) {
  Graph graph;
  const Chain chain(graph);
  std::vector<Output> out = chain.Reduce();
  out.push_back(
      AddAllReduce(chain.loss, ReduceOp::kMean, kRank, CallSite::Here()));
  EXPECT_THAT(LowerCollectives(ProgramOf(graph, out), {}).calls,
              ElementsAre("AllReduce mean of 4 tensors, f32[193]"));
  // the loss is there first; then a matrix is more than 256 bytes have room for
  EXPECT_THAT(
      LowerCollectives(ProgramOf(graph, out), {.bucket_bytes = 256}).calls,
      ElementsAre("AllReduce mean of 2 tensors, f32[65]",
                  "AllReduce mean of 1 tensors, f32[64]",
                  // needed at once
                  "AllReduce mean of f32[8,8]"));
  // larger than a bucket: alone
  EXPECT_THAT(
      LowerCollectives(ProgramOf(graph, out), {.bucket_bytes = 255}).calls,
      ElementsAre("AllReduce mean of 1 tensors, f32[1]",
                  "AllReduce mean of 1 tensors, f32[64]",
                  "AllReduce mean of 1 tensors, f32[64]",
                  "AllReduce mean of f32[8,8]"));
}

// What a call has does not depend on the order in which a replica computes.
TEST(LoweringTest, InTheProgramsOrderTheLastComputedIsNotTheLastOfABucket) {
  Graph graph;
  const Chain chain(graph);
  const graph::Program program = ProgramOf(graph, chain.Reduce());
  const auto members = [&](const LoweringOptions& options) {
    return LowerCollectives(program, options).members;
  };
  EXPECT_THAT(members({}), ElementsAre(ElementsAre(3, 2, 1)));
  EXPECT_THAT(members({.in_program_order = true}),
              ElementsAre(ElementsAre(1, 2, 3)));
  EXPECT_THAT(members({.bucket_bytes = 512, .in_program_order = true}),
              ElementsAre(ElementsAre(1, 2), ElementsAre(3)));
  EXPECT_THAT(
      LowerCollectives(program, {.bucket_bytes = 512, .in_program_order = true})
          .calls,
      ElementsAre("AllReduce mean of 2 tensors, f32[128]",
                  "AllReduce mean of f32[8,8]"));
}

TEST(LoweringTest, WhatTravelsAsBf16HasBucketsOfItsOwn) {
  Graph graph;
  const Chain chain(graph);
  std::vector<Output> out = chain.Reduce();
  out.push_back(AddAllReduce(chain.loss, ReduceOp::kMean, kRank,
                             CallSite::Here(), {.dtype = DType::kBF16}));
  EXPECT_THAT(LowerCollectives(ProgramOf(graph, out), {}).calls,
              ElementsAre("AllReduce mean of 1 tensors, bf16[1]",
                          "AllReduce mean of 3 tensors, f32[192]"));
}

TEST(LoweringTest, ABucketStartsWhileTheBackwardPassStillRuns) {
  Graph graph;
  const Chain chain(graph);
  const LoweredProgram lowered =
      LowerCollectives(ProgramOf(graph, chain.Reduce()), {.bucket_bytes = 1});
  const Graph& g = *lowered.program.graph;
  const int64_t first_start = PositionOf(g, "BucketStart", 0);
  const int64_t last_start = PositionOf(g, "BucketStart", 2);
  // two of three: a product for the weight and one for what is before it
  int num_products = 0;
  for (const graph::Node& node : g.nodes()) {
    if (node.op->name == "MatMul" && node.id > first_start) ++num_products;
  }
  EXPECT_GE(num_products, 3);
  EXPECT_GT(PositionOf(g, "BucketWait", 0), last_start);
}

TEST(LoweringTest, WhatIsNeededAtOnceIsOneBlockingCall) {
  Graph graph;
  const Output x = graph.Input("x", DType::kF32, Shape({4}));
  const Output largest = AddAllReduce(graph::ReduceMax(x), ReduceOp::kMax,
                                      kRank, CallSite::Here());
  const Output all =
      AddAllGather(graph::Div(x, largest), kRank, CallSite::Here());
  const LoweredProgram lowered = LowerCollectives(ProgramOf(graph, {all}), {});
  EXPECT_THAT(lowered.calls,
              ElementsAre("AllReduce max of f32[]", "AllGather of f32[4]"));
  EXPECT_EQ(PositionOf(*lowered.program.graph, "BucketStart"), -1);
}

TEST(LoweringTest, AnInputThatAnotherResultLeadsToIsNotInItsBucket) {
  Graph graph;
  const Output x = graph.Input("x", DType::kF32, Shape({4}));
  const Output first = AddAllReduce(x, ReduceOp::kSum, kRank, CallSite::Here());
  const Output second = AddAllReduce(graph::Square(first), ReduceOp::kSum,
                                     kRank, CallSite::Here());
  EXPECT_EQ(LowerCollectives(ProgramOf(graph, {second}), {}).calls.size(), 2U);
}

TEST(LoweringTest, CallsKeepTheirOrderByATokenFromOneToTheNext) {
  Graph graph;
  const Chain chain(graph);
  std::vector<Output> out = chain.Reduce();
  out.push_back(AddAllGather(chain.loss, kRank, CallSite::Here()));
  const LoweredProgram lowered =
      LowerCollectives(ProgramOf(graph, out), {.bucket_bytes = 1});
  const Graph& g = *lowered.program.graph;
  int64_t last = PositionOf(g, "Constant");
  int num_calls = 0;
  for (const graph::Node& node : g.nodes()) {
    if (node.op->name != "BucketStart" && node.op->name != "CollectiveCall") {
      continue;
    }
    ++num_calls;
    const graph::Endpoint token = node.inputs.back();
    if (num_calls > 1) {
      EXPECT_EQ(token.node, last);
      EXPECT_EQ(token.index, 1);
    }
    last = node.id;
  }
  EXPECT_EQ(num_calls, 4);
}

}  // namespace
}  // namespace replicant::replicator
