#include "engine/nn/initializers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/tensor_values.h"

namespace replicant::nn {
namespace {

std::vector<double> Draw(const Initializer& initializer, const Shape& shape,
                         DType dtype = DType::kF64) {
  RandomStream random(3, "initializers_test");
  HostTensor value(dtype, shape);
  initializer(random, value.mutable_view());
  return testing::ToDoubles(value.view());
}

double Variance(const std::vector<double>& x) {
  double sum = 0.0;
  for (const double v : x) sum += v * v;
  return sum / static_cast<double>(x.size());
}

double Largest(const std::vector<double>& x) {
  double largest = 0.0;
  for (const double v : x) largest = std::max(largest, std::fabs(v));
  return largest;
}

// Rows of a wide matrix, columns of a tall one.
TEST(InitializersTest, OrthogonalVectorsAreOrthogonalAndOfNormGain) {
  for (const Shape& shape :
       {Shape({3, 7}), Shape({7, 3}), Shape({4, 3, 2, 2})}) {
    const auto rows = static_cast<size_t>(shape[0]);
    const size_t columns = static_cast<size_t>(shape.num_elements()) / rows;
    const std::vector<double> w = Draw(Orthogonal(2.0), shape);
    const bool is_wide = rows <= columns;
    const size_t count = std::min(rows, columns);
    const size_t size = std::max(rows, columns);
    for (size_t a = 0; a < count; ++a) {
      for (size_t b = 0; b <= a; ++b) {
        double dot = 0.0;
        for (size_t i = 0; i < size; ++i) {
          dot += is_wide ? w[a * columns + i] * w[b * columns + i]
                         : w[i * columns + a] * w[i * columns + b];
        }
        EXPECT_NEAR(dot, a == b ? 4.0 : 0.0, 1e-13);
      }
    }
  }
}

// 5 standard errors of the variance of n draws: sqrt(2/n) for a normal,
// sqrt(4/(5n)) for a uniform, relative.
TEST(InitializersTest, SpreadFollowsTheFans) {
  const Shape shape({50, 8, 5, 5});  // fan_in 200, fan_out 1250
  const double n = 50 * 200;
  const double normal_error = 5.0 * std::sqrt(2.0 / n);
  const double uniform_error = 5.0 * std::sqrt(0.8 / n);
  EXPECT_NEAR(Variance(Draw(HeNormal(), shape)) * 200.0 / 2.0, 1.0,
              normal_error);
  EXPECT_NEAR(Variance(Draw(HeNormalFanOut(), shape)) * 1250.0 / 2.0, 1.0,
              normal_error);
  const std::vector<double> glorot = Draw(GlorotUniform(), shape);
  EXPECT_NEAR(Variance(glorot) * (200.0 + 1250.0) / 2.0, 1.0, uniform_error);
  const std::vector<double> torch = Draw(PyTorchWeight(), shape);
  EXPECT_NEAR(Variance(torch) * 3.0 * 200.0, 1.0, uniform_error);
  EXPECT_LE(Largest(torch), 1.0 / std::sqrt(200.0));
  EXPECT_LE(Largest(Draw(PyTorchBias(16), Shape({100}))), 0.25);
}

TEST(InitializersTest, EveryFloatingTypeCanBeFilled) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    EXPECT_EQ(Draw(Constant(0.5), Shape({2}), dtype),
              (std::vector<double>{0.5, 0.5}));
  }
}

TEST(InitializersTest, ScaledMultipliesEveryValue) {
  const std::vector<double> w = Draw(Normal(0.0, 1.0), Shape({4, 4}));
  const std::vector<double> scaled =
      Draw(Scaled(Normal(0.0, 1.0), 0.25), Shape({4, 4}));
  for (size_t i = 0; i < w.size(); ++i) EXPECT_EQ(scaled[i], 0.25 * w[i]);
}

TEST(InitializersDeathTest, AnIntegerHasNoRandomValue) {
  EXPECT_DEATH(Draw(Normal(0.0, 1.0), Shape({2}), DType::kI32),
               "i32 has no random first value");
}

}  // namespace
}  // namespace replicant::nn
