#include "core/graph/ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/graph/ops/elementwise.h"
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

TEST(LayerNormTest, NormalisesEachRow) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", Values(DType::kF64, Shape({2, 2}), {1, 3, 10, 10}));
  const Output gamma =
      runner.Input("gamma", Values(DType::kF64, Shape({2}), {2, 2}));
  const Output beta =
      runner.Input("beta", Values(DType::kF64, Shape({2}), {0, 5}));
  // row 0: mean 2, variance 1; row 1: variance 0
  const double y = 2.0 / std::sqrt(1.0 + 1e-5);
  const V values = runner.Eval(LayerNorm(x, gamma, beta));
  EXPECT_NEAR(values[0], -y, 1e-14);
  EXPECT_NEAR(values[1], y + 5.0, 1e-14);
  EXPECT_EQ(values[2], 0.0);
  EXPECT_EQ(values[3], 5.0);
}

TEST(LayerNormTest, GradientsMatchCentralDifferences) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({2, 3, 7}), 1));
  const Output gamma =
      runner.Input("gamma", RandomNormal(DType::kF64, Shape({7}), 2));
  const Output beta =
      runner.Input("beta", RandomNormal(DType::kF64, Shape({7}), 3));
  EXPECT_LT(runner.MaxGradientError(Tanh(LayerNorm(x, gamma, beta)),
                                    {x, gamma, beta}),
            kGradientTolerance);
}

TEST(BatchNormTest, NormalisesEachChannelAndGivesItsStatistics) {
  GraphRunner runner;
  const Output x = runner.Input(
      "x", Values(DType::kF64, Shape({2, 1, 1, 2}), {1, 10, 3, 10}));
  const Output gamma =
      runner.Input("gamma", Values(DType::kF64, Shape({2}), {2, 2}));
  const Output beta =
      runner.Input("beta", Values(DType::kF64, Shape({2}), {0, 5}));
  const BatchNormOutputs norm = BatchNorm(x, gamma, beta);
  EXPECT_EQ(runner.Eval(norm.mean), (V{2, 10}));
  EXPECT_EQ(runner.Eval(norm.variance), (V{1, 0}));
  const double y = 2.0 / std::sqrt(1.0 + 1e-5);
  const V values = runner.Eval(norm.y);
  EXPECT_NEAR(values[0], -y, 1e-14);
  EXPECT_EQ(values[1], 5.0);
  EXPECT_NEAR(values[2], y, 1e-14);
  EXPECT_EQ(values[3], 5.0);
}

TEST(BatchNormTest, InferenceWithTheBatchStatisticsIsTraining) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({4, 2, 2, 3}), 1));
  const Output gamma =
      runner.Input("gamma", RandomNormal(DType::kF64, Shape({3}), 2));
  const Output beta =
      runner.Input("beta", RandomNormal(DType::kF64, Shape({3}), 3));
  const BatchNormOutputs norm = BatchNorm(x, gamma, beta);
  const V train = runner.Eval(norm.y);
  const V inference =
      runner.Eval(BatchNormInference(x, gamma, beta, norm.mean, norm.variance));
  for (size_t i = 0; i < train.size(); ++i) {
    EXPECT_NEAR(train[i], inference[i], 1e-13);
  }
}

TEST(BatchNormTest, GradientsMatchCentralDifferences) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({3, 2, 2, 3}), 1));
  const Output gamma =
      runner.Input("gamma", RandomNormal(DType::kF64, Shape({3}), 2));
  const Output beta =
      runner.Input("beta", RandomNormal(DType::kF64, Shape({3}), 3));
  EXPECT_LT(runner.MaxGradientError(Tanh(BatchNorm(x, gamma, beta).y),
                                    {x, gamma, beta}),
            kGradientTolerance);
  const Output mean =
      runner.Input("mean", RandomNormal(DType::kF64, Shape({3}), 4));
  const Output variance = runner.Input(
      "variance", testing::RandomUniform(DType::kF64, Shape({3}), 0.5, 2, 5));
  EXPECT_LT(runner.MaxGradientError(
                BatchNormInference(x, gamma, beta, mean, variance),
                {x, gamma, beta, mean, variance}),
            kGradientTolerance);
}

// The fused norm gives the bits of the separate nodes, in f32.
TEST(NormTest, ActivationIsFusedWithoutAChange) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF32, Shape({5, 6}), 1));
  const Output gamma =
      runner.Input("gamma", RandomNormal(DType::kF32, Shape({6}), 2));
  const Output beta =
      runner.Input("beta", RandomNormal(DType::kF32, Shape({6}), 3));
  const Output y = Tanh(LayerNorm(x, gamma, beta));
  const auto fused = runner.Compile({.outputs = {y}});
  EXPECT_EQ(fused->report().num_kernels, 1);
  const auto separate = runner.Compile(
      {.outputs = {y}}, {.passes = {{"fuse_epilogue", "fuse_elementwise"}}});
  EXPECT_EQ(separate->report().num_kernels, 2);
  fused->Run();
  separate->Run();
  EXPECT_EQ(testing::ToDoubles(fused->output(0)),
            testing::ToDoubles(separate->output(0)));
}

TEST(NormTest, RefusesVectorsOfAnotherSize) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({5, 6}));
  const Output v = g.Input("v", DType::kF32, Shape({5}));
  const Output none = g.Input("none", DType::kF32, Shape({0, 5}));
  EXPECT_EQ(MessageOf([&] { LayerNorm(x, v, v, 1e-5, kSite); }),
            "model.cc:12: LayerNorm 'LayerNorm': want x [...,C] and gamma, "
            "beta [C] of one floating dtype, got f32[5,6], f32[5], f32[5]");
  EXPECT_EQ(MessageOf([&] { BatchNorm(none, v, v, 1e-5, kSite); }),
            "model.cc:12: BatchNorm 'BatchNorm': want at least one element per "
            "channel, got f32[0,5]");
}

}  // namespace
}  // namespace replicant::graph
