#include "engine/graph/ops/matmul.h"

#include <gtest/gtest.h>

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

struct Case {
  bool transpose_a;
  bool transpose_b;
};

class MatMulTest : public ::testing::TestWithParam<Case> {};

// Whole numbers, so that the sums are exact in every dtype of the list.
TEST_P(MatMulTest, IsTheTripleLoop) {
  const auto [transpose_a, transpose_b] = GetParam();
  constexpr int64_t kM = 3, kK = 4, kN = 2;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    GraphRunner runner;
    std::vector<double> a, b;
    for (int i = 0; i < kM * kK; ++i) a.push_back(i % 5 - 2);
    for (int i = 0; i < kK * kN; ++i) b.push_back(i % 3 - 1);
    const Output x = runner.Input(
        "a", Values(dtype, transpose_a ? Shape({kK, kM}) : Shape({kM, kK}), a));
    const Output y = runner.Input(
        "b", Values(dtype, transpose_b ? Shape({kN, kK}) : Shape({kK, kN}), b));
    const Output c = MatMul(x, y, {transpose_a, transpose_b});
    ASSERT_EQ(c.shape(), Shape({kM, kN}));
    const std::vector<double> values = runner.Eval(c);
    for (int64_t m = 0; m < kM; ++m) {
      for (int64_t n = 0; n < kN; ++n) {
        double sum = 0.0;
        for (int64_t k = 0; k < kK; ++k) {
          sum += a[static_cast<size_t>(transpose_a ? k * kM + m : m * kK + k)] *
                 b[static_cast<size_t>(transpose_b ? n * kK + k : k * kN + n)];
        }
        EXPECT_EQ(values[static_cast<size_t>(m * kN + n)], sum);
      }
    }
  }
}

TEST_P(MatMulTest, GradientMatchesCentralDifferences) {
  const auto [transpose_a, transpose_b] = GetParam();
  GraphRunner runner;
  const Output a = runner.Input(
      "a", RandomNormal(DType::kF64,
                        transpose_a ? Shape({4, 3}) : Shape({3, 4}), 1));
  const Output b = runner.Input(
      "b", RandomNormal(DType::kF64,
                        transpose_b ? Shape({2, 4}) : Shape({4, 2}), 2));
  const Output c = MatMul(a, b, {transpose_a, transpose_b});
  EXPECT_LT(runner.MaxGradientError(c, {a, b}), kGradientTolerance);
}

INSTANTIATE_TEST_SUITE_P(Transposes, MatMulTest,
                         ::testing::Values(Case{false, false},
                                           Case{false, true}, Case{true, false},
                                           Case{true, true}));

TEST(MatMulTest, RefusesWhatIsNotAProductOfMatrices) {
  Graph g;
  const Output a = g.Input("a", DType::kF32, Shape({3, 4}));
  const Output b = g.Input("b", DType::kF32, Shape({5, 6}));
  const Output v = g.Input("v", DType::kF32, Shape({4}));
  const Output d = g.Input("d", DType::kF64, Shape({4, 3}));
  EXPECT_EQ(MessageOf([&] { MatMul(a, b, {}, kSite); }),
            "model.cc:12: MatMul 'MatMul': inner dimensions differ: a f32[3,4] "
            "and b f32[5,6]");
  EXPECT_EQ(MessageOf([&] { MatMul(a, b, {.transpose_b = true}, kSite); }),
            "model.cc:12: MatMul 'MatMul': inner dimensions differ: a f32[3,4] "
            "and b f32[5,6] transposed");
  EXPECT_EQ(MessageOf([&] { MatMul(a, v, {}, kSite); }),
            "model.cc:12: MatMul 'MatMul': want two matrices of one floating "
            "dtype, got a f32[3,4] and b f32[4]");
  EXPECT_EQ(MessageOf([&] { MatMul(a, d, {}, kSite); }),
            "model.cc:12: MatMul 'MatMul': want two matrices of one floating "
            "dtype, got a f32[3,4] and b f64[4,3]");
}

}  // namespace
}  // namespace replicant::graph
