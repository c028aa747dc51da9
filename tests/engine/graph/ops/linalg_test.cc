#include "engine/graph/ops/linalg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
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

constexpr CallSite kSite{"model.cc", 12};

TEST(BatchMatMulTest, IsTheProductOfEachPair) {
  for (int i = 0; i < 4; ++i) {
    const bool ta = (i & 1) != 0;
    const bool tb = (i & 2) != 0;
    GraphRunner runner;
    const Output a = runner.Input(
        "a",
        RandomNormal(DType::kF64, ta ? Shape({3, 4, 2}) : Shape({3, 2, 4}), 1));
    const Output b = runner.Input(
        "b",
        RandomNormal(DType::kF64, tb ? Shape({3, 5, 4}) : Shape({3, 4, 5}), 2));
    const Output c = BatchMatMul(a, b, {ta, tb});
    ASSERT_EQ(c.shape(), Shape({3, 2, 5}));
    // against MatMul on slices
    const auto pair = [&](Output x, int64_t at) {
      const Output one = Slice(x, {at, 0, 0}, {1, x.shape()[1], x.shape()[2]});
      return Reshape(one, {x.shape()[1], x.shape()[2]});
    };
    for (int64_t at = 0; at < 3; ++at) {
      EXPECT_EQ(runner.Eval(pair(c, at)),
                runner.Eval(MatMul(pair(a, at), pair(b, at), {ta, tb})));
    }
    EXPECT_LT(runner.MaxGradientError(c, {a, b}), kGradientTolerance);
  }
}

TEST(CholeskySolveTest, SolvesByTheSymmetricPart) {
  GraphRunner runner;
  // S = [[4, 1], [1, 3]], split unevenly, and b = S (1, 2)
  const Output a = runner.Input(
      "a", Values(DType::kF64, Shape({2, 2}), std::vector{4.0, 2.0, 0.0, 3.0}));
  const Output b = runner.Input(
      "b", Values(DType::kF64, Shape({2, 1}), std::vector{6.0, 7.0}));
  const std::vector<double> x = runner.Eval(CholeskySolve(a, b));
  EXPECT_NEAR(x[0], 1.0, 1e-15);
  EXPECT_NEAR(x[1], 2.0, 1e-15);
}

TEST(CholeskySolveTest, GradientMatchesCentralDifferences) {
  for (const bool is_batch : {false, true}) {
    GraphRunner runner;
    const Shape square = is_batch ? Shape({2, 4, 4}) : Shape({4, 4});
    const Output a = runner.Input("a", RandomNormal(DType::kF64, square, 1));
    const Output b = runner.Input(
        "b", RandomNormal(DType::kF64,
                          is_batch ? Shape({2, 4, 3}) : Shape({4, 3}), 2));
    std::vector<double> diagonal(16);
    for (size_t i = 0; i < 4; ++i) diagonal[i * 5] = 6.0;
    const Output s = Add(a, runner.graph().Constant(TensorView(
                                DType::kF64, Shape({4, 4}), diagonal.data())));
    EXPECT_LT(runner.MaxGradientError(CholeskySolve(s, b), {a, b}),
              kGradientTolerance);
  }
}

TEST(CholeskySolveTest, AMatrixThatIsNotPositiveDefiniteGivesNaN) {
  GraphRunner runner;
  const Output a = runner.Input(
      "a", Values(DType::kF64, Shape({2, 2, 2}),
                  std::vector{1.0, 2.0, 2.0, 1.0, 1.0, 0.0, 0.0, 1.0}));
  const Output b = runner.Input("b", Values(DType::kF64, Shape({2, 2, 1}),
                                            std::vector{1.0, 1.0, 1.0, 1.0}));
  const std::vector<double> x = runner.Eval(CholeskySolve(a, b));
  EXPECT_TRUE(std::isnan(x[0]) && std::isnan(x[1]));
  // of the other one
  EXPECT_EQ(x[2], 1.0);
  EXPECT_EQ(x[3], 1.0);
}

TEST(LinalgTest, RefusesOtherShapes) {
  Graph g;
  const Output m = g.Input("m", DType::kF32, Shape({3, 4}));
  const Output s = g.Input("s", DType::kF32, Shape({3, 3}));
  const Output batch = g.Input("batch", DType::kF32, Shape({2, 3, 4}));
  const Output other = g.Input("other", DType::kF32, Shape({2, 3, 5}));
  EXPECT_EQ(MessageOf([&] { BatchMatMul(batch, m, {}, kSite); }),
            "model.cc:12: BatchMatMul 'BatchMatMul': want two batches of "
            "matrices [B,M,K] and [B,K,N] of one floating dtype, got a "
            "f32[2,3,4] and b f32[3,4]");
  EXPECT_EQ(
      MessageOf(
          [&] { BatchMatMul(batch, other, {.transpose_b = true}, kSite); }),
      "model.cc:12: BatchMatMul 'BatchMatMul': batches or inner dimensions "
      "differ: a f32[2,3,4] and b f32[2,3,5] transposed");
  EXPECT_EQ(MessageOf([&] { CholeskySolve(m, s, kSite); }),
            "model.cc:12: CholeskySolve 'CholeskySolve': want a [N,N] and b "
            "[N,M], or batches [B,N,N] and [B,N,M], of one floating dtype, got "
            "a f32[3,4] and b f32[3,3]");
}

}  // namespace
}  // namespace replicant::graph
