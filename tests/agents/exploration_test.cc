#include "agents/exploration.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/config/load.h"

namespace replicant::agents {
namespace {

TEST(NoiseScaleTest, GoesInAStraightLineAndStays) {
  const ExplorationConfig config{
      .sigma = 1.0, .final_sigma = 0.2, .decay_steps = 1000};
  EXPECT_EQ(NoiseScale(config, 0, 0, 1), 1.0);
  EXPECT_NEAR(NoiseScale(config, 250, 0, 1), 0.8, 1e-12);
  EXPECT_NEAR(NoiseScale(config, 1000, 0, 1), 0.2, 1e-12);
  EXPECT_NEAR(NoiseScale(config, 1'000'000, 0, 1), 0.2, 1e-12);
  EXPECT_EQ(NoiseScale({.sigma = 0.3}, 1'000'000, 0, 1), 0.3);
}

TEST(NoiseScaleTest, ActorsLieEvenlyInProportion) {
  const ExplorationConfig config{.sigma = 0.4, .actor_spread = 0.25};
  EXPECT_NEAR(NoiseScale(config, 0, 0, 3), 0.4, 1e-12);
  EXPECT_NEAR(NoiseScale(config, 0, 1, 3), 0.2, 1e-12);
  EXPECT_NEAR(NoiseScale(config, 0, 2, 3), 0.1, 1e-12);
}

TEST(NoiseScaleDeathTest, AnActorBeyondTheLastAborts) {
  EXPECT_DEATH(NoiseScale({}, 0, 3, 3), "actor 3 of 3");
}

TEST(ExplorationConfigTest, RefusesAnEndThatIsNeverReached) {
  try {
    config::Load<ExplorationConfig>(
        config::Document::FromText("run.yaml", "final_sigma: 0.1"));
    FAIL() << "no ConfigError";
  } catch (const ConfigError& e) {
    EXPECT_STREQ(
        e.what(),
        "run.yaml:1:14: final_sigma: is never reached with decay_steps "
        "0");
  }
}

}  // namespace
}  // namespace replicant::agents
