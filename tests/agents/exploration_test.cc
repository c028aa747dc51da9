#include "agents/exploration.h"

#include <gtest/gtest.h>

namespace replicant::agents {
namespace {

TEST(ExplorationTest, ScaleFallsInAStraightLine) {
  const ExplorationConfig config{
      .initial_scale = 1.0, .final_scale = 0.2, .decay_steps = 100};
  EXPECT_DOUBLE_EQ(config.Scale(0, 0, 1), 1.0);
  EXPECT_DOUBLE_EQ(config.Scale(50, 0, 1), 0.6);
  EXPECT_DOUBLE_EQ(config.Scale(100, 0, 1), 0.2);
  EXPECT_DOUBLE_EQ(config.Scale(1'000'000, 0, 1), 0.2);
}

TEST(ExplorationTest, WithoutDecayItIsTheFinalScale) {
  const ExplorationConfig config{.initial_scale = 1.0, .final_scale = 0.2};
  EXPECT_DOUBLE_EQ(config.Scale(0, 0, 1), 0.2);
}

TEST(ExplorationTest, HoldFallsWithTheScale) {
  const ExplorationConfig config{
      .initial_hold_steps = 4, .final_hold_steps = 1, .decay_steps = 300};
  EXPECT_EQ(config.HoldSteps(0), 4);
  EXPECT_EQ(config.HoldSteps(49), 4);
  EXPECT_EQ(config.HoldSteps(51), 3);
  EXPECT_EQ(config.HoldSteps(150), 3);  // 2.5 is rounded up
  EXPECT_EQ(config.HoldSteps(200), 2);
  EXPECT_EQ(config.HoldSteps(300), 1);
  EXPECT_EQ(config.HoldSteps(1'000'000), 1);
}

TEST(ExplorationTest, EnvironmentsSpreadGeometrically) {
  const ExplorationConfig config{.final_scale = 0.8, .spread = 0.25};
  EXPECT_DOUBLE_EQ(config.Scale(0, 0, 3), 0.8);
  EXPECT_DOUBLE_EQ(config.Scale(0, 1, 3), 0.4);
  EXPECT_DOUBLE_EQ(config.Scale(0, 2, 3), 0.2);
  EXPECT_DOUBLE_EQ(config.Scale(0, 0, 1), 0.8);
}

TEST(ExplorationTest, TheFirstStepsAreRandom) {
  const ExplorationConfig config{.random_steps = 10};
  EXPECT_TRUE(config.IsRandom(9));
  EXPECT_FALSE(config.IsRandom(10));
}

}  // namespace
}  // namespace replicant::agents
