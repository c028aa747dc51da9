#include "replay/table/priority_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace replicant::replay::internal {
namespace {

using ::testing::ElementsAre;

using Weight = SumTree::Weight;

constexpr auto kMaxUnits = static_cast<double>(SumTree::kMaxWeight);

std::vector<Weight> Weights(const std::vector<double>& priorities,
                            double exponent) {
  std::vector<Weight> weights(priorities.size());
  WeightsOf(priorities.data(), priorities.size(), exponent, weights.data());
  return weights;
}

// In units, by the standard library.
double UnitsOf(double priority, double exponent) {
  if (priority == 0.0) return 0.0;
  return std::clamp(std::pow(priority, exponent) * kUnitsPerWeight, 1.0,
                    kMaxUnits);
}

// From 1e-9 to 1e9, a tenth of them zero.
std::vector<double> DrawPriorities(size_t count) {
  RandomStream random(3, "priorities");
  std::vector<double> priorities(count);
  for (double& priority : priorities) {
    if (random.UniformInt(10) == 0) continue;
    priority = static_cast<float>(std::pow(10.0, random.Uniform(-9.0, 9.0)));
  }
  return priorities;
}

TEST(PriorityWeightsTest, AreRoundedPowersWithEveryInstructionSet) {
  // no multiple of any number of lanes
  const std::vector<double> priorities = DrawPriorities(1003);
  for (int64_t rest = hwy::SupportedTargets(); rest != 0; rest &= rest - 1) {
    hwy::SetSupportedTargetsForTest(rest & -rest);
    hwy::GetChosenTarget().DeInit();
    for (const double exponent : {0.0, 0.3, 0.6, 0.999, 1.0}) {
      const std::vector<Weight> weights = Weights(priorities, exponent);
      for (size_t i = 0; i < priorities.size(); ++i) {
        // half a unit, and a hundredth for the power's own error
        EXPECT_NEAR(static_cast<double>(weights[i]),
                    UnitsOf(priorities[i], exponent), 0.51)
            << priorities[i] << "^" << exponent;
      }
    }
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

TEST(PriorityWeightsTest, DoNotDependOnTheirNeighbours) {
  const std::vector<double> priorities = DrawPriorities(100);
  const std::vector<Weight> weights = Weights(priorities, 0.6);
  for (size_t i = 0; i < priorities.size(); ++i) {
    EXPECT_THAT(Weights({priorities[i]}, 0.6), ElementsAre(weights[i]));
  }
}

TEST(PriorityWeightsTest, AreWholeUnitsWithinTheLimits) {
  const double largest = std::numeric_limits<float>::max();
  const double least = std::numeric_limits<float>::denorm_min();
  EXPECT_THAT(Weights({0.0, least, 1.0, largest}, 1.0),
              ElementsAre(0, 1, 1 << 20, SumTree::kMaxWeight));
  EXPECT_THAT(Weights({0.0, least, 1.0, largest}, 0.6),
              ElementsAre(0, 1, 1 << 20, SumTree::kMaxWeight));
  EXPECT_THAT(Weights({0.0, least, 1.0, largest}, 0.0),
              ElementsAre(0, 1 << 20, 1 << 20, 1 << 20));
}

}  // namespace
}  // namespace replicant::replay::internal
