#include "engine/graph/ops/losses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "engine/graph/gradients.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/reduce.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::graph {
namespace {

using testing::GraphRunner;
using testing::kGradientTolerance;
using testing::MessageOf;
using testing::RandomDistribution;
using testing::RandomNormal;
using testing::Values;
using V = std::vector<double>;

constexpr CallSite kSite{"model.cc", 12};

TEST(SoftmaxTest, IsADistributionWhateverTheOffset) {
  GraphRunner runner;
  const Output x = runner.Input(
      "x", Values(DType::kF64, Shape({2, 2}), {0, std::log(3.0), 1000, 1000}));
  const V y = runner.Eval(Softmax(x));
  EXPECT_NEAR(y[0], 0.25, 1e-15);
  EXPECT_NEAR(y[1], 0.75, 1e-15);
  EXPECT_NEAR(y[2], 0.5, 1e-15);
  const V log_y = runner.Eval(LogSoftmax(x));
  EXPECT_NEAR(log_y[0], std::log(0.25), 1e-15);
  EXPECT_NEAR(log_y[3], std::log(0.5), 1e-12);
}

TEST(SoftmaxTest, GradientsMatchCentralDifferences) {
  GraphRunner runner;
  const Output x =
      runner.Input("x", RandomNormal(DType::kF64, Shape({2, 3, 5}), 1));
  EXPECT_LT(runner.MaxGradientError(Softmax(x), {x}), kGradientTolerance);
  EXPECT_LT(runner.MaxGradientError(LogSoftmax(x), {x}), kGradientTolerance);
}

TEST(SoftmaxCrossEntropyTest, UniformTargetOnEqualLogitsIsLogK) {
  GraphRunner runner;
  const Output logits =
      runner.Input("logits", Values(DType::kF64, Shape({1, 51}), V(51, 2.5)));
  const Output target = runner.Input(
      "target", Values(DType::kF64, Shape({1, 51}), V(51, 1.0 / 51)));
  EXPECT_NEAR(runner.Eval(SoftmaxCrossEntropy(logits, target))[0],
              std::log(51.0), 1e-12);
}

// Also for a target whose mass is not 1, where the softmax is weighted by it.
TEST(SoftmaxCrossEntropyTest, GradientMatchesCentralDifferences) {
  GraphRunner runner;
  const Output logits =
      runner.Input("logits", RandomNormal(DType::kF64, Shape({3, 7}), 1));
  const Output target =
      runner.Input("target", RandomDistribution(DType::kF64, 3, 7, 2));
  const Output other = runner.Input(
      "other", testing::RandomUniform(DType::kF64, Shape({3, 7}), 0, 1, 3));
  EXPECT_LT(
      runner.MaxGradientError(SoftmaxCrossEntropy(logits, target), {logits}),
      kGradientTolerance);
  EXPECT_LT(
      runner.MaxGradientError(SoftmaxCrossEntropy(logits, other), {logits}),
      kGradientTolerance);
}

TEST(SoftmaxCrossEntropyTest, NoGradientFlowsIntoTheTarget) {
  Graph g;
  const Output logits = g.Input("logits", DType::kF32, Shape({3, 7}));
  const Output target = g.Input("target", DType::kF32, Shape({3, 7}));
  const Output loss = ReduceSum(SoftmaxCrossEntropy(logits, target));
  EXPECT_EQ(
      MessageOf([&] { Gradients(loss, {target}, kSite); }),
      "model.cc:12: Gradients: no gradient flows from the loss 'ReduceSum' "
      "to 'target'");
}

// A label that is no class must not look like a perfect prediction.
TEST(SoftmaxCrossEntropyTest, LabelOutsideTheClassesGivesNaN) {
  for (const char* backend : {"reference", "cpu"}) {
    for (const double smoothing : {0.0, 0.1}) {
      GraphRunner runner(backend);
      const Output logits =
          runner.Input("logits", RandomNormal(DType::kF32, Shape({3, 4}), 1));
      const Output labels =
          runner.Input("labels", Values(DType::kI32, Shape({3}), {4, 0, -1}));
      const V loss =
          runner.Eval(SoftmaxCrossEntropyWithLabels(logits, labels, smoothing));
      EXPECT_TRUE(std::isnan(loss[0])) << backend << " " << loss[0];
      EXPECT_TRUE(std::isfinite(loss[1])) << backend << " " << loss[1];
      EXPECT_TRUE(std::isnan(loss[2])) << backend << " " << loss[2];
    }
  }
}

TEST(SoftmaxCrossEntropyTest, LabelsAreOneHotTargets) {
  GraphRunner runner;
  const Output logits =
      runner.Input("logits", RandomNormal(DType::kF64, Shape({3, 4}), 1));
  const Output labels =
      runner.Input("labels", Values(DType::kI32, Shape({3}), {2, 0, 3}));
  const V loss = runner.Eval(SoftmaxCrossEntropyWithLabels(logits, labels));
  const V log_y = runner.Eval(LogSoftmax(logits));
  EXPECT_NEAR(loss[0], -log_y[2], 1e-15);
  EXPECT_NEAR(loss[1], -log_y[4], 1e-15);
  EXPECT_NEAR(loss[2], -log_y[11], 1e-15);
  EXPECT_LT(runner.MaxGradientError(
                SoftmaxCrossEntropyWithLabels(logits, labels), {logits}),
            kGradientTolerance);
  // smoothed: a tenth of the target is spread over all classes
  const V smooth =
      runner.Eval(SoftmaxCrossEntropyWithLabels(logits, labels, 0.1));
  const V mean = runner.Eval(ReduceMean(LogSoftmax(logits), {.axes = {1}}));
  EXPECT_NEAR(smooth[0], -0.9 * log_y[2] - 0.1 * mean[0], 1e-14);
  EXPECT_EQ(MessageOf([&] {
              SoftmaxCrossEntropyWithLabels(logits, labels, 1.0, kSite);
            }),
            "model.cc:12: SoftmaxCrossEntropyWithLabels: want 0 <= label "
            "smoothing < 1, got 1");
}

// The algorithm as the paper writes it: each atom's mass goes to the two atoms
// around its new place.
V ProjectByScatter(const V& p, double reward, double discount, double v_min,
                   double v_max) {
  V m(p.size(), 0.0);
  const auto last = static_cast<double>(p.size() - 1);
  const double gap = (v_max - v_min) / last;
  for (size_t j = 0; j < p.size(); ++j) {
    const double z = v_min + static_cast<double>(j) * gap;
    const double moved = std::clamp(reward + discount * z, v_min, v_max);
    const double b = (moved - v_min) / gap;
    const double low = std::floor(b);
    m[static_cast<size_t>(low)] += p[j] * (1.0 - (b - low));
    if (b > low) m[static_cast<size_t>(low) + 1] += p[j] * (b - low);
  }
  return m;
}

TEST(CategoricalProjectionTest, AgreesWithTheScatterOfThePaper) {
  constexpr int64_t kRows = 6, kAtoms = 51;
  const HostTensor p = RandomDistribution(DType::kF64, kRows, kAtoms, 1);
  const V rewards = {0, 1, -3, 40, 0.37, 5};
  const V discounts = {1, 0.97, 0.9, 0.5, 0, 0.99};
  GraphRunner runner;
  const Output m = CategoricalProjection(
      runner.Input("p", HostTensor::Clone(p.view())),
      runner.Input("r", Values(DType::kF64, Shape({kRows}), rewards)),
      runner.Input("d", Values(DType::kF64, Shape({kRows}), discounts)), 0.0,
      33.3);
  const V values = runner.Eval(m);
  const V all = testing::ToDoubles(p.view());
  for (size_t row = 0; row < kRows; ++row) {
    const auto begin = all.begin() + static_cast<int64_t>(row * kAtoms);
    const V expected = ProjectByScatter(V(begin, begin + kAtoms), rewards[row],
                                        discounts[row], 0.0, 33.3);
    double sum = 0.0;
    for (size_t k = 0; k < kAtoms; ++k) {
      // the place b is a difference of numbers up to 33 in gaps of 0.7
      EXPECT_NEAR(values[row * kAtoms + k], expected[k], 1e-12);
      sum += values[row * kAtoms + k];
    }
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(CategoricalProjectionTest, KeepsNaNOfRewardsAndDiscounts) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const char* backend : {"reference", "cpu"}) {
    GraphRunner runner(backend);
    const V m = runner.Eval(CategoricalProjection(
        runner.Input("p", RandomDistribution(DType::kF32, 3, 5, 1)),
        runner.Input("r", Values(DType::kF32, Shape({3}), {nan, 0, 0.5})),
        runner.Input("d", Values(DType::kF32, Shape({3}), {1, nan, 0.5})), 0.0,
        1.0));
    const auto row_sum = [&m](int64_t row) {
      return std::accumulate(m.begin() + 5 * row, m.begin() + 5 * row + 5, 0.0);
    };
    EXPECT_TRUE(std::isnan(row_sum(0))) << backend << " " << row_sum(0);
    EXPECT_TRUE(std::isnan(row_sum(1))) << backend << " " << row_sum(1);
    EXPECT_NEAR(row_sum(2), 1.0, 1e-6) << backend;
  }
}

TEST(LossesTest, RefuseWhatDoesNotFit) {
  Graph g;
  const Output a = g.Input("a", DType::kF32, Shape({3, 51}));
  const Output b = g.Input("b", DType::kF32, Shape({3, 50}));
  const Output i = g.Input("i", DType::kI32, Shape({3}));
  const Output r = g.Input("r", DType::kF32, Shape({4}));
  EXPECT_EQ(MessageOf([&] { SoftmaxCrossEntropy(a, b, kSite); }),
            "model.cc:12: SoftmaxCrossEntropy 'SoftmaxCrossEntropy': want "
            "logits and target of one [B,K] shape and floating dtype, got "
            "f32[3,51] and f32[3,50]");
  EXPECT_EQ(MessageOf([&] { Softmax(i, kSite); }),
            "model.cc:12: Softmax 'Softmax': want a floating dtype and a last "
            "dimension of at least 1, got i32[3]");
  EXPECT_EQ(MessageOf([&] { CategoricalProjection(a, r, r, 0, 1, kSite); }),
            "model.cc:12: CategoricalProjection 'CategoricalProjection': want "
            "probabilities [B,K], K >= 2, and reward, discount [B] of one "
            "floating dtype, got f32[3,51], f32[4], f32[4]");
  EXPECT_EQ(MessageOf([&] { CategoricalProjection(a, r, r, 1, 1, kSite); }),
            "model.cc:12: CategoricalProjection: want v_min < v_max, got 1 and "
            "1");
}

TEST(GatherTest, TakesRowsAndGivesZerosOutside) {
  GraphRunner runner;
  const Output table = runner.Input(
      "table", Values(DType::kF64, Shape({3, 2}), {1, 2, 3, 4, 5, 6}));
  const Output ids =
      runner.Input("ids", Values(DType::kI64, Shape({2, 2}), {2, 0, -1, 3}));
  const Output y = Embedding(table, ids);
  ASSERT_EQ(y.shape(), Shape({2, 2, 2}));
  EXPECT_EQ(runner.Eval(y), (V{5, 6, 1, 2, 0, 0, 0, 0}));
}

TEST(GatherTest, GradientAddsUpRowsThatWereTakenTwice) {
  GraphRunner runner;
  const Output table =
      runner.Input("table", RandomNormal(DType::kF64, Shape({3, 2}), 1));
  const Output ids =
      runner.Input("ids", Values(DType::kI32, Shape({4}), {2, 0, 2, 7}));
  EXPECT_LT(runner.MaxGradientError(Gather(table, ids), {table}),
            kGradientTolerance);
}

TEST(OneHotTest, MarksTheIndex) {
  GraphRunner runner;
  const Output ids =
      runner.Input("ids", Values(DType::kI32, Shape({3}), {1, -1, 2}));
  EXPECT_EQ(runner.Eval(OneHot(ids, 2, DType::kF32)), (V{0, 1, 0, 0, 0, 0}));
}

TEST(IndexingTest, RefusesWhatDoesNotFit) {
  Graph g;
  const Output x = g.Input("x", DType::kF32, Shape({3}));
  EXPECT_EQ(MessageOf([&] { Gather(x, x, kSite); }),
            "model.cc:12: Gather 'Gather': want a table [N,...] and indices of "
            "i32 or i64, got f32[3] and f32[3]");
  EXPECT_EQ(MessageOf([&] { OneHot(x, 2, DType::kF32, kSite); }),
            "model.cc:12: OneHot 'OneHot': want indices of i32 or i64 and "
            "depth >= 1, got f32[3] and 2");
}

}  // namespace
}  // namespace replicant::graph
