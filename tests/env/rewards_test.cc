#include "env/rewards.h"

#include <gtest/gtest.h>

#include <array>

namespace replicant::env {
namespace {

constexpr std::array kAllSigmoids = {Sigmoid::kGaussian, Sigmoid::kLongTail,
                                     Sigmoid::kReciprocal, Sigmoid::kLinear,
                                     Sigmoid::kQuadratic};

TEST(RewardsTest, IsOneWithinTheBoundsAndOnThem) {
  for (const double x : {-1.0, 0.5, 2.0}) {
    EXPECT_EQ(Tolerance(x, {.lower = -1.0, .upper = 2.0}), 1.0);
    EXPECT_EQ(Tolerance(x, {.lower = -1.0, .upper = 2.0, .margin = 3.0}), 1.0);
  }
}

TEST(RewardsTest, WithoutAMarginItIsZeroOutside) {
  EXPECT_EQ(Tolerance(2.1, {.upper = 2.0}), 0.0);
  EXPECT_EQ(Tolerance(-0.1, {.upper = 2.0}), 0.0);
}

TEST(RewardsTest, HasTheGivenValueAtTheMarginOnBothSides) {
  for (const Sigmoid sigmoid : kAllSigmoids) {
    for (const double value : {0.1, 0.5, 0.9}) {
      const ToleranceOptions options{.lower = -1.0,
                                     .upper = 2.0,
                                     .margin = 4.0,
                                     .sigmoid = sigmoid,
                                     .value_at_margin = value};
      EXPECT_NEAR(Tolerance(6.0, options), value, 1e-15);
      EXPECT_NEAR(Tolerance(-5.0, options), value, 1e-15);
    }
  }
}

TEST(RewardsTest, FallsWithTheDistanceAndNeverBelowZero) {
  for (const Sigmoid sigmoid : kAllSigmoids) {
    double last = 1.0;
    for (double x = 0.01; x < 10.0; x += 0.37) {
      const double value = Tolerance(x, {.margin = 1.0, .sigmoid = sigmoid});
      EXPECT_LE(value, last);
      EXPECT_GE(value, 0.0);
      last = value;
    }
  }
}

// dm_control.utils.rewards.tolerance(0.7, bounds=(0, 0.2), margin=0.8, ...)
TEST(RewardsTest, EqualsTheValuesOfDmControl) {
  const auto at = [](Sigmoid sigmoid, double value_at_margin) {
    return Tolerance(0.7, {.upper = 0.2,
                           .margin = 0.8,
                           .sigmoid = sigmoid,
                           .value_at_margin = value_at_margin});
  };
  EXPECT_NEAR(at(Sigmoid::kGaussian, 0.1), 0.40679443210830485, 1e-15);
  EXPECT_NEAR(at(Sigmoid::kLongTail, 0.1), 0.22145328719723192, 1e-15);
  EXPECT_NEAR(at(Sigmoid::kReciprocal, 0.1), 0.15094339622641512, 1e-15);
  EXPECT_NEAR(at(Sigmoid::kLinear, 0.5), 0.6875, 1e-15);
  EXPECT_NEAR(at(Sigmoid::kQuadratic, 0.0), 0.6093750000000001, 1e-15);
}

TEST(RewardsTest, SmallControlIsOneAtRestAndZeroAtFullStrength) {
  EXPECT_EQ(SmallControl(std::array{0.0, 0.0}), 1.0);
  EXPECT_EQ(SmallControl(std::array{1.0, -1.0}), 0.0);
  EXPECT_EQ(SmallControl(std::array{0.0, 3.0}), 0.5);
}

TEST(RewardsDeathTest, BoundsInTheWrongOrderAbort) {
  EXPECT_DEATH(Tolerance(0.0, {.lower = 1.0, .upper = 0.0}), "1 vs 0");
}

}  // namespace
}  // namespace replicant::env
