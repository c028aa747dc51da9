#include "engine/graph/ops/reduce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using testing::kGradientTolerance;
using testing::MessageOf;
using testing::RandomNormal;
using testing::Values;
using V = std::vector<double>;

constexpr CallSite kSite{"model.cc", 12};

Output Numbers(GraphRunner& runner) {
  return runner.Input("x",
                      Values(DType::kF32, Shape({2, 3}), {1, 5, 3, -4, 0, -2}));
}

TEST(ReduceTest, ReducesTheNamedAxes) {
  GraphRunner runner;
  const Output x = Numbers(runner);
  EXPECT_EQ(runner.Eval(ReduceSum(x)), (V{3}));
  EXPECT_EQ(runner.Eval(ReduceSum(x, {.axes = {0}})), (V{-3, 5, 1}));
  EXPECT_EQ(runner.Eval(ReduceSum(x, {.axes = {-1}})), (V{9, -6}));
  EXPECT_EQ(runner.Eval(ReduceMean(x, {.axes = {1}})), (V{3, -2}));
  EXPECT_EQ(runner.Eval(ReduceMax(x, {.axes = {1}})), (V{5, 0}));
  EXPECT_EQ(runner.Eval(ReduceMin(x, {.axes = {0, 1}})), (V{-4}));
  EXPECT_EQ(runner.Eval(ArgMax(x)), (V{1, 1}));
}

TEST(ReduceTest, KeepDimsLeavesOnes) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2, 3, 4}));
  EXPECT_EQ(ReduceSum(x, {.axes = {1}, .keep_dims = true}).shape(),
            Shape({2, 1, 4}));
  EXPECT_EQ(ReduceSum(x, {.axes = {1}}).shape(), Shape({2, 4}));
  EXPECT_EQ(ReduceSum(x).shape(), Shape({}));
}

TEST(ReduceTest, SumOverAnEmptyAxisIsZero) {
  GraphRunner runner;
  const Output x = runner.Input("x", Values(DType::kF32, Shape({2, 0}), {}));
  EXPECT_EQ(runner.Eval(ReduceSum(x, {.axes = {1}})), (V{0, 0}));
}

TEST(ReduceTest, NanWinsMaxAndMin) {
  GraphRunner runner;
  const Output x = runner.Input(
      "x", Values(DType::kF32, Shape({3}),
                  {1, std::numeric_limits<double>::quiet_NaN(), 2}));
  EXPECT_TRUE(std::isnan(runner.Eval(ReduceMax(x))[0]));
  EXPECT_TRUE(std::isnan(runner.Eval(ReduceMin(x))[0]));
}

TEST(ReduceTest, GradientsMatchCentralDifferences) {
  for (const std::vector<int64_t>& axes :
       {std::vector<int64_t>{}, {0}, {1}, {0, 2}}) {
    for (const bool keep_dims : {false, true}) {
      for (const auto reduce :
           {&ReduceSum, &ReduceMean, &ReduceMax, &ReduceMin}) {
        GraphRunner runner;
        const Output x = runner.Input(
            "x", RandomNormal(DType::kF64, Shape({2, 3, 4}), /*seed=*/1));
        const Output y =
            reduce(x, {.axes = axes, .keep_dims = keep_dims}, kSite);
        EXPECT_LT(runner.MaxGradientError(y, {x}), kGradientTolerance);
      }
    }
  }
}

TEST(ReduceTest, EqualExtremaShareTheGradient) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF64, Shape({3}), {2, 2, 1}));
  const Output dx = Gradients(ReduceMax(x), {x})[0];
  EXPECT_EQ(runner.Eval(dx), (V{0.5, 0.5, 0}));
}

TEST(ReduceTest, SumToUndoesBroadcasting) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF32, Shape({2, 1, 2}), {1, 2, 3, 4}));
  EXPECT_EQ(runner.Eval(SumTo(x, Shape({2}))), (V{4, 6}));
  EXPECT_EQ(runner.Eval(SumTo(x, Shape({1, 1}))), (V{10}));
  EXPECT_EQ(SumTo(x, x.shape()), x);
}

TEST(ReduceTest, RefusesAxesAndTypesThatDoNotFit) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({2, 0}));
  const Output b = g.Input("b", DType::kBool, Shape({2}));
  EXPECT_EQ(MessageOf([&] { ReduceSum(x, {.axes = {2}}, kSite); }),
            "model.cc:12: ReduceSum 'ReduceSum': axis 2 is outside [-2, 2) of "
            "f32[2,0]");
  EXPECT_EQ(
      MessageOf([&] {
        ReduceSum(x, {.axes = {0, -2}}, kSite);
      }),
      "model.cc:12: ReduceSum 'ReduceSum': axes [0,0] name an axis twice");
  EXPECT_EQ(MessageOf([&] { ReduceMax(x, {.axes = {1}}, kSite); }),
            "model.cc:12: ReduceMax 'ReduceMax': axis 1 of f32[2,0] is empty "
            "and has no extremum");
  EXPECT_EQ(MessageOf([&] { ReduceSum(b, {}, kSite); }),
            "model.cc:12: ReduceSum 'ReduceSum': want a numeric dtype (any but "
            "bool), got bool[2]");
  EXPECT_EQ(MessageOf([&] { ReduceMean(b, {}, kSite); }),
            "model.cc:12: ReduceMean 'ReduceMean': want a floating dtype (f32, "
            "f64, bf16), got bool[2]");
  EXPECT_EQ(MessageOf([&] { ArgMax(x, kSite); }),
            "model.cc:12: ArgMax 'ArgMax': want a last axis of at least one "
            "element, got f32[2,0]");
}

}  // namespace
}  // namespace replicant::graph
