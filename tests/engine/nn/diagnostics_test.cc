#include "engine/nn/diagnostics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/graph_runner.h"

namespace replicant::nn {
namespace {

using replicant::testing::GraphRunner;
using replicant::testing::Values;
using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(DormantShareTest, CountsUnitsByTheirLayersMean) {
  GraphRunner runner;
  // means 1, 0.05, 0 and 0.95 of 0.5: units 1 and 2 are dormant
  const auto first = runner.Input(
      "first",
      Values(DType::kF64, Shape({2, 4}), {2, 0.1, 0, 1, 0, 0, 0, -0.9}));
  // a small layer is no dormant one
  const auto second = runner.Input(
      "second", Values(DType::kF64, Shape({2, 2}), {1e-6, 2e-6, 1e-6, 0}));
  EXPECT_THAT(runner.Eval(DormantShare({first})), ElementsAre(0.5));
  EXPECT_THAT(runner.Eval(DormantShare({first, second})),
              ElementsAre(DoubleNear(2.0 / 6.0, 1e-12)));
  EXPECT_FALSE(DormantShare({}).is_valid());
}

TEST(DormantShareTest, ADeadLayerIsDormantAsAWhole) {
  GraphRunner runner;
  const auto dead =
      runner.Input("dead", Values(DType::kF64, Shape({2, 2}), {0, 0, 0, 0}));
  EXPECT_THAT(runner.Eval(DormantShare({dead})), ElementsAre(1.0));
}

TEST(ParticipationRatioTest, CountsTheDirectionsInWhichRowsVary) {
  GraphRunner runner;
  const auto ratio = [&](const std::string& name, const Shape& shape,
                         const std::vector<double>& rows) {
    return runner.Eval(ParticipationRatio(
        runner.Input(name, Values(DType::kF64, shape, rows))));
  };
  const auto near = [](double x) { return ElementsAre(DoubleNear(x, 1e-12)); };
  // an offset is no direction
  EXPECT_THAT(ratio("line", Shape({3, 2}), {5, 1, 6, 2, 7, 3}), near(1.0));
  EXPECT_THAT(
      ratio("square", Shape({4, 3}), {1, 0, 9, -1, 0, 9, 0, 1, 9, 0, -1, 9}),
      near(2.0));
  // variances 4 and 1: 25 / 17
  EXPECT_THAT(ratio("oblong", Shape({4, 2}), {2, 0, -2, 0, 0, 1, 0, -1}),
              near(25.0 / 17.0));
  EXPECT_THAT(ratio("point", Shape({2, 2}), {3, 4, 3, 4}), near(0.0));
}

}  // namespace
}  // namespace replicant::nn
