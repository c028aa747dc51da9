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

}  // namespace
}  // namespace replicant::nn
