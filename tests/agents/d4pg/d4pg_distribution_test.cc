#include <gtest/gtest.h>

#include "agents/d4pg/distribution.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::agents::d4pg {
namespace {

using graph::Output;
using testing::GraphRunner;
using testing::MessageOf;
using testing::Values;

TEST(MakeSupportTest, DefaultsToTheRangeThatReturnsCanHave) {
  const Support averaged = MakeSupport({}, 0.97, /*largest_reward=*/1.0);
  EXPECT_EQ(averaged.v_min, 0.0);
  EXPECT_NEAR(averaged.v_max, 1.0 / 0.03, 1e-12);
  EXPECT_EQ(averaged.num_atoms, 51);
  const Support summed = MakeSupport({}, 0.97, /*largest_reward=*/8.0);
  EXPECT_NEAR(summed.v_max, 8.0 / 0.03, 1e-12);
  // rounded to what one writes
  EXPECT_EQ(MakeSupport({.v_max = 33.3}, 0.97, 1.0).v_max, 33.3);
  EXPECT_EQ(MakeSupport({.v_min = -5.0, .v_max = 40.0}, 0.97, 1.0).v_min, -5.0);
}

TEST(MakeSupportTest, RefusesARangeThatCutsReturns) {
  const std::string tail =
      " cut the range of returns, [0, 100] for a largest reward of 1 per agent "
      "step and discount 0.99; hint: leave them out, or widen them";
  EXPECT_EQ(
      MessageOf<ConfigError>([] { MakeSupport({.v_max = 99.0}, 0.99, 1.0); }),
      "D4PG: distribution.v_min 0 and v_max 99" + tail);
  EXPECT_EQ(MessageOf<ConfigError>([] {
              MakeSupport({.v_min = 0.5}, 0.99, 1.0);
            }).substr(0, 28),
            "D4PG: distribution.v_min 0.5");
  EXPECT_EQ(MessageOf<ConfigError>([] { MakeSupport({}, 1.0, 1.0); }),
            "D4PG: want a discount in [0, 1), got 1; returns of endless "
            "episodes have no bound otherwise");
}

// Rewards of a user's own environment may all be negative.
TEST(MakeSupportTest, TakesAnyRangeOfRewardsThatAreNotKnown) {
  const auto make = [](const DistributionConfig& config) {
    return MakeSupport(config, 0.97, 1.0, /*is_range_known=*/false);
  };
  EXPECT_EQ(make({.v_min = -500.0, .v_max = 0.0}).v_max, 0.0);
  EXPECT_NEAR(make({}).v_max, 1.0 / 0.03, 1e-9);
  EXPECT_EQ(MessageOf<ConfigError>([&] { make({.v_max = 0.0}); }),
            "D4PG: distribution.v_min 0 is not below v_max 0; hint: give both "
            "for rewards that are not in [0, 1]");
}

TEST(FindClippedTest, NamesTheBoundsThatRewardsNeed) {
  const Support support{.v_min = 0.0, .v_max = 100.0, .num_atoms = 51};
  const auto why = [&](float reward, float discount) {
    const float rewards[] = {0.5F, reward};
    const float discounts[] = {0.99F, discount};
    const auto misfit = FindClipped(support, rewards, discounts);
    return misfit ? misfit->why : "";
  };
  EXPECT_EQ(why(1.0F, 0.99F), "");
  // the end of an episode
  EXPECT_EQ(why(90.0F, 0.0F), "");
  EXPECT_EQ(why(3.0F, 0.5F), "");
  EXPECT_EQ(why(-2.0F, 0.5F),
            "the rewards seen, if they last, give returns from -4 to 50; "
            "targets outside agent.distribution's v_min 0 and v_max 100 are "
            "clipped; hint: set agent.distribution.range: running, or "
            "agent.distribution.v_min <= -4");
  EXPECT_EQ(why(100.0F, 0.5F),
            "the rewards seen, if they last, give returns from 50 to 200; "
            "targets outside agent.distribution's v_min 0 and v_max 100 are "
            "clipped; hint: set agent.distribution.range: running, or "
            "agent.distribution.v_max >= 200");
}

TEST(FindClippedTest, ARangeWithoutZeroNeedNotHoldIt) {
  const float rewards[] = {-30.0F, -60.0F};
  const float discounts[] = {0.5F, 0.5F};
  const auto fits = [&](double v_min, double v_max) {
    return !FindClipped({.v_min = v_min, .v_max = v_max, .num_atoms = 51},
                        rewards, discounts);
  };
  EXPECT_TRUE(fits(-120.0, -60.0));
  EXPECT_FALSE(fits(-100.0, -60.0));
  EXPECT_FALSE(fits(-120.0, -80.0));
}

TEST(FindClippedTest, MeasuresTheDistanceInLengthsOfTheRange) {
  const Support support{.v_min = 0.0, .v_max = 100.0, .num_atoms = 51};
  const auto size = [&](float reward) {
    const float discount = 0.5F;
    return FindClipped(support, {&reward, 1}, {&discount, 1})->size;
  };
  EXPECT_NEAR(size(100.0F), 1.0, 1e-6);
  EXPECT_NEAR(size(-25.0F), 0.5, 1e-6);
}

TEST(ExpectedValueTest, WeighsTheAtoms) {
  GraphRunner runner;
  const Output p = runner.Input(
      "p", Values(DType::kF64, Shape({2, 3}), {0.5, 0.25, 0.25, 0, 0, 1}));
  const auto value = runner.Eval(
      ExpectedValue(p, {.v_min = -2.0, .v_max = 4.0, .num_atoms = 3}));
  EXPECT_NEAR(value[0], 0.5 * -2 + 0.25 * 1 + 0.25 * 4, 1e-15);
  EXPECT_EQ(value[1], 4.0);
}

}  // namespace
}  // namespace replicant::agents::d4pg
