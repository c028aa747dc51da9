#include "engine/graph/ops/norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
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

// In parts, as replicas compute it: the same values and gradients as of all
// rows at once, with what may follow and with vectors for each example.
TEST(BatchNormTest, PartsOfABatchAreNormalisedAsTheWhole) {
  for (const bool is_conditional : {false, true}) {
    for (const bool has_relu : {false, true}) {
      for (const bool has_residual : {false, true}) {
        GraphRunner runner;
        const Shape shape({4, 2, 3, 3});
        const Shape c = is_conditional ? Shape({4, 3}) : Shape({3});
        const Output x = runner.Input("x", RandomNormal(DType::kF64, shape, 1));
        const Output gamma =
            runner.Input("gamma", RandomNormal(DType::kF64, c, 2));
        const Output beta =
            runner.Input("beta", RandomNormal(DType::kF64, c, 3));
        const Output residual =
            runner.Input("residual", RandomNormal(DType::kF64, shape, 4));
        const Output weight =
            runner.Input("weight", RandomNormal(DType::kF64, shape, 5));
        // rows 2 i and 2 i + 1 of a tensor
        const auto part = [](Output all, int64_t i) {
          std::vector<int64_t> size(all.shape().dims().begin(),
                                    all.shape().dims().end());
          std::vector<int64_t> begin(size.size(), 0);
          begin[0] = 2 * i;
          size[0] = 2;
          return Slice(all, begin, size);
        };
        const auto vector = [&](Output all, int64_t i) {
          return is_conditional ? part(all, i) : all;
        };
        std::vector<Output> rows;
        rows.reserve(2);
        for (int64_t i = 0; i < 2; ++i) {
          rows.push_back(Reshape(BatchMoments(part(x, i)), {1, 2, 3}));
        }
        const Output moments = CombineMoments(Concat(rows, 0));
        std::vector<Output> ys;
        ys.reserve(2);
        for (int64_t i = 0; i < 2; ++i) {
          BatchNormOptions options{.has_relu = has_relu};
          if (has_residual) options.residual = part(residual, i);
          ys.push_back(BatchNormApply(part(x, i), vector(gamma, i),
                                      vector(beta, i), moments, options));
        }
        BatchNormOptions options{.has_relu = has_relu};
        if (has_residual) options.residual = residual;
        const BatchNormOutputs whole = BatchNorm(x, gamma, beta, options);

        std::vector<Output> wrt = {x, gamma, beta};
        if (has_residual) wrt.push_back(residual);
        const auto all_of = [&](Output y) {
          V all = runner.Eval(y);
          for (const Output& g : Gradients(ReduceSum(Mul(weight, y)), wrt)) {
            const V values = runner.Eval(g);
            all.insert(all.end(), values.begin(), values.end());
          }
          return all;
        };
        const V expected = all_of(whole.y);
        const V in_parts = all_of(Concat(ys, 0));
        ASSERT_EQ(expected.size(), in_parts.size());
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(expected[i], in_parts[i], 1e-12);
        }
        const V both = runner.Eval(moments);
        const V mean = runner.Eval(whole.mean);
        const V variance = runner.Eval(whole.variance);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_NEAR(both[i], mean[i], 1e-14);
          EXPECT_NEAR(both[3 + i], variance[i], 1e-14);
        }
      }
    }
  }
}

TEST(BatchNormTest, GradientsOfPartsMatchCentralDifferences) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({3, 2, 2, 3}), 1));
  const Output gamma =
      runner.Input("gamma", RandomNormal(DType::kF64, Shape({3, 3}), 2));
  const Output beta =
      runner.Input("beta", RandomNormal(DType::kF64, Shape({3, 3}), 3));
  EXPECT_LT(runner.MaxGradientError(BatchMoments(x), {x}), kGradientTolerance);
  const Output gathered = runner.Input(
      "gathered",
      testing::RandomUniform(DType::kF64, Shape({4, 2, 3}), 0.5, 2, 4));
  EXPECT_LT(runner.MaxGradientError(CombineMoments(gathered), {gathered}),
            kGradientTolerance);
  const Output moments = runner.Input(
      "moments", testing::RandomUniform(DType::kF64, Shape({2, 3}), 0.5, 2, 5));
  EXPECT_LT(runner.MaxGradientError(BatchNormApply(x, gamma, beta, moments),
                                    {x, gamma, beta, moments}),
            kGradientTolerance);
}

TEST(BatchNormTest, PartsRefuseWhatDoesNotFit) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({4, 3}));
  const Output c = g.Input("c", DType::kF32, Shape({3}));
  const Output labels = g.Input("labels", DType::kI32, Shape({4, 3}));
  EXPECT_EQ(MessageOf([&] { BatchMoments(labels, kSite); }),
            "model.cc:12: BatchMoments 'BatchMoments': want x [...,C] of a "
            "floating dtype, got i32[4,3]");
  EXPECT_EQ(MessageOf([&] { CombineMoments(x, kSite); }),
            "model.cc:12: CombineMoments 'CombineMoments': want moments "
            "[R,2,C] of a floating dtype, got f32[4,3]");
  EXPECT_EQ(MessageOf([&] { BatchNormApply(x, c, c, c, {}, kSite); }),
            "model.cc:12: BatchNormApply 'BatchNormApply': want x [B,...,C], "
            "gamma, beta [C] or [B,C], moments [2,C], and a residual as x, of "
            "one floating dtype, got f32[4,3], f32[3], f32[3], f32[3]");
}

// The options add the same as separate ops: values and all gradients.
TEST(BatchNormTest, ReluAndResidualAreThoseOfSeparateOps) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({3, 2, 2, 3}), 1));
  const Output gamma =
      runner.Input("gamma", RandomNormal(DType::kF64, Shape({3}), 2));
  const Output beta =
      runner.Input("beta", RandomNormal(DType::kF64, Shape({3}), 3));
  const Output residual = runner.Input(
      "residual", RandomNormal(DType::kF64, Shape({3, 2, 2, 3}), 4));
  const Output weight =
      runner.Input("weight", RandomNormal(DType::kF64, Shape({3, 2, 2, 3}), 5));
  const auto gradients = [&](Output y, const std::vector<Output>& wrt) {
    V all = runner.Eval(y);
    for (const Output& g : Gradients(ReduceSum(Mul(weight, y)), wrt)) {
      const V values = runner.Eval(g);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  const Output plain = BatchNorm(x, gamma, beta).y;
  const std::vector<Output> vectors = {x, gamma, beta};
  const std::vector<Output> all = {x, gamma, beta, residual};
  const auto expect_equal = [](const V& a, const V& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-13);
  };
  expect_equal(
      gradients(BatchNorm(x, gamma, beta, {.has_relu = true}).y, vectors),
      gradients(Relu(plain), vectors));
  expect_equal(
      gradients(BatchNorm(x, gamma, beta, {.residual = residual}).y, all),
      gradients(Add(plain, residual), all));
  expect_equal(
      gradients(
          BatchNorm(x, gamma, beta, {.has_relu = true, .residual = residual}).y,
          all),
      gradients(Relu(Add(plain, residual)), all));
}

// With gamma and beta of each example: those of ones and zeros, scaled.
TEST(BatchNormTest, VectorsOfEachExampleScaleTheSharedNorm) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({3, 2, 2, 3}), 1));
  const Output gamma =
      runner.Input("gamma", RandomNormal(DType::kF64, Shape({3, 3}), 2));
  const Output beta =
      runner.Input("beta", RandomNormal(DType::kF64, Shape({3, 3}), 3));
  const BatchNormOutputs norm = BatchNorm(x, gamma, beta);
  const Output ones = runner.graph().Constant(
      Values(DType::kF64, Shape({3}), {1, 1, 1}).view());
  const Output zeros = runner.graph().Constant(
      Values(DType::kF64, Shape({3}), {0, 0, 0}).view());
  const V expected = runner.Eval(
      Add(Mul(BatchNorm(x, ones, zeros).y, Reshape(gamma, {3, 1, 1, 3})),
          Reshape(beta, {3, 1, 1, 3})));
  const V values = runner.Eval(norm.y);
  const V inference =
      runner.Eval(BatchNormInference(x, gamma, beta, norm.mean, norm.variance));
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], expected[i], 1e-13);
    EXPECT_NEAR(inference[i], expected[i], 1e-13);
  }
  EXPECT_LT(runner.MaxGradientError(Tanh(norm.y), {x, gamma, beta}),
            kGradientTolerance);
}

// At the vectors that it converges to, u^T W v is the largest singular value.
TEST(SpectralNormTest, ManyIterationsGiveALargestSingularValueOfOne) {
  GraphRunner runner;
  // singular values 3 and 1
  const Output w = runner.Input("w", Values(DType::kF64, Shape({2, 1, 2}),
                                            {3 * 0.6, 3 * 0.8, -0.8, 0.6}));
  Output u = runner.Input("u", Values(DType::kF64, Shape({2}), {0.6, 0.8}));
  SpectralNormOutputs norm;
  for (int i = 0; i < 20; ++i) {
    norm = SpectralNorm(w, u);
    u = norm.u;
  }
  const V expected = {0.6, 0.8, -0.8 / 3, 0.6 / 3};
  const V y = runner.Eval(norm.y);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], expected[i], 1e-12);
  EXPECT_NEAR(runner.Eval(norm.u)[0], 1.0, 1e-12);
  EXPECT_NEAR(runner.Eval(norm.v)[1], 0.8, 1e-12);
}

// The vectors count as fixed, so the gradient equals the inference form's.
TEST(SpectralNormTest, GradientIsThatWithFixedVectors) {
  GraphRunner runner;
  const Output w =
      runner.Input("w", RandomNormal(DType::kF64, Shape({3, 2, 2}), 1));
  const Output u = runner.Input("u", RandomNormal(DType::kF64, Shape({3}), 2));
  const SpectralNormOutputs norm = SpectralNorm(w, u);
  const Output new_u = runner.Input(
      "new_u", Values(DType::kF64, Shape({3}), runner.Eval(norm.u)));
  const Output new_v = runner.Input(
      "new_v", Values(DType::kF64, Shape({4}), runner.Eval(norm.v)));
  const Output inference = SpectralNormInference(w, new_u, new_v);
  const V a = runner.Eval(Gradients(ReduceSum(Square(norm.y)), {w})[0]);
  const V b = runner.Eval(Gradients(ReduceSum(Square(inference)), {w})[0]);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-13);
  EXPECT_LT(runner.MaxGradientError(Tanh(inference), {w, new_u, new_v}),
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
  EXPECT_EQ(MessageOf([&] { BatchNorm(none, v, v, {}, kSite); }),
            "model.cc:12: BatchNorm 'BatchNorm': want at least one element per "
            "channel, got f32[0,5]");
  EXPECT_EQ(
      MessageOf([&] { BatchNorm(x, x, x, {.residual = v}, kSite); }),
      "model.cc:12: BatchNorm 'BatchNorm': want x [B,...,C], gamma, "
      "beta [C] or [B,C], and a residual as x, of one floating dtype, got "
      "f32[5,6], f32[5,6], f32[5,6], f32[5]");
}

}  // namespace
}  // namespace replicant::graph
