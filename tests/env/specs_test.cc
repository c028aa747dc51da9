#include "env/specs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace replicant::env {
namespace {

// The range of the second one does not touch [-1, 1].
TEST(SpecsTest, ActionsAreDrawnBetweenTheirBounds) {
  const ActionSpec spec{.minimum = {-1e10, 2.0, -3.0},
                        .maximum = {1e10, 3.0, 1.5}};
  const std::vector<double> low = {-1.0, 2.0, -3.0}, high = {1.0, 3.0, 1.5};
  RandomStream random(1, "actions");
  std::vector<double> action(3), least = high, greatest = low;
  for (int t = 0; t < 1000; ++t) {
    DrawAction(spec, random, action);
    for (size_t i = 0; i < action.size(); ++i) {
      least[i] = std::min(least[i], action[i]);
      greatest[i] = std::max(greatest[i], action[i]);
    }
  }
  for (size_t i = 0; i < action.size(); ++i) {
    const double edge = 0.02 * (high[i] - low[i]);
    EXPECT_GE(least[i], low[i]) << i;
    EXPECT_LT(least[i], low[i] + edge) << i;
    EXPECT_LT(greatest[i], high[i]) << i;
    EXPECT_GT(greatest[i], high[i] - edge) << i;
  }
}

}  // namespace
}  // namespace replicant::env
