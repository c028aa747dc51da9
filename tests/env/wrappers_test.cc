#include "env/wrappers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "env/rewards.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using ::testing::ElementsAre;
using testing::MessageOf;

constexpr std::array kPush = {1.0, 0.5};

class WrappersTest : public ::testing::Test {
 protected:
  std::unique_ptr<ControlEnvironment> Make(double time_limit_s) {
    return MakeEnvironment(
        testing::DefineSmallTask(folder_, {.time_limit_s = time_limit_s}), {});
  }
  TemporaryFolder folder_;
  std::array<double, 4> state_{};
  std::array<double, 4> plain_state_{};
  const ObservationBuffer out_{.state = state_};
  const ObservationBuffer plain_out_{.state = plain_state_};
};

TEST_F(WrappersTest, ActionRepeatEqualsRepeatedSteps) {
  const auto plain = Make(/*time_limit_s=*/1.0);
  ActionRepeat mean(Make(1.0), 4, RewardReduction::kMean);
  ActionRepeat sum(Make(1.0), 4, RewardReduction::kSum);
  plain->Reset(plain_out_);
  mean.Reset(out_);
  sum.Reset(out_);
  double reward = 0.0;
  for (int i = 0; i < 4; ++i) reward += plain->Step(kPush, plain_out_).reward;
  EXPECT_EQ(sum.Step(kPush, out_).reward, reward);
  EXPECT_EQ(state_, plain_state_);
  EXPECT_EQ(mean.Step(kPush, out_).reward, reward / 4);
  EXPECT_EQ(state_, plain_state_);
  EXPECT_EQ(mean.counters().steps, 4);
}

TEST_F(WrappersTest, ActionRepeatStopsWhereTheEpisodeEndsAndObservesIt) {
  const auto plain = Make(/*time_limit_s=*/0.06);
  ActionRepeat repeat(Make(0.06), 4, RewardReduction::kMean);
  plain->Reset(plain_out_);
  repeat.Reset(out_);
  double reward = 0.0;
  for (int i = 0; i < 6; ++i) {
    const double r = plain->Step(kPush, plain_out_).reward;
    if (i >= 4) reward += r / 2;
  }
  EXPECT_EQ(repeat.Step(kPush, out_).step_type, StepType::kMid);
  const TimeStep last = repeat.Step(kPush, out_);
  EXPECT_TRUE(last.IsLast());
  EXPECT_EQ(last.discount, 1.0);
  EXPECT_NEAR(last.reward, reward, 1e-15);
  EXPECT_EQ(state_, plain_state_);

  // the next step is the first of an episode, not four steps into it
  EXPECT_TRUE(repeat.Step(kPush, out_).IsFirst());
  EXPECT_EQ(repeat.counters().steps, 6);
}

TEST_F(WrappersTest, ActionRepeatRefusesBadInputBeforeItMoves) {
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { ActionRepeat(Make(1.0), 0, RewardReduction::kSum); }),
            "ActionRepeat: count must be >= 1, got 0");
  ActionRepeat repeat(Make(1.0), 3, RewardReduction::kSum);
  repeat.Reset(out_);
  std::array<double, 2> small{};
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { repeat.Step(kPush, {.state = small}); }),
      "ActionRepeat: state buffer has 2 elements, want 4");
  EXPECT_EQ(repeat.counters().steps, 0);
}

TEST_F(WrappersTest, StepLimitCutsOffWithDiscountOne) {
  StepLimit limited(Make(kInfinity), 3);
  EXPECT_TRUE(limited.Step(kPush, out_).IsFirst());
  EXPECT_EQ(limited.Step(kPush, out_).step_type, StepType::kMid);
  EXPECT_EQ(limited.Step(kPush, out_).step_type, StepType::kMid);
  const TimeStep last = limited.Step(kPush, out_);
  EXPECT_TRUE(last.IsLast());
  EXPECT_EQ(last.discount, 1.0);
  EXPECT_TRUE(limited.Step(kPush, out_).IsFirst());
  EXPECT_EQ(limited.counters().episodes, 2);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { StepLimit(Make(1.0), 0); }),
            "StepLimit: max_steps must be >= 1, got 0");
}

TEST(FrameStackTest, HoldsTheLastFramesPerPixelOldestFirst) {
  // two pixels of two channels
  FrameStack stack(/*pixels=*/2, /*channels=*/2, /*depth=*/3);
  const auto write = [&stack](uint8_t first) {
    std::generate(stack.frame().begin(), stack.frame().end(),
                  [&first] { return first++; });
  };
  write(10);
  stack.Fill();
  EXPECT_THAT(stack.stack(), ElementsAre(10, 11, 10, 11, 10, 11,  //
                                         12, 13, 12, 13, 12, 13));
  write(20);
  stack.Push();
  write(30);
  stack.Push();
  EXPECT_THAT(stack.stack(), ElementsAre(10, 11, 20, 21, 30, 31,  //
                                         12, 13, 22, 23, 32, 33));
  write(40);
  stack.Push();
  EXPECT_THAT(stack.stack(), ElementsAre(20, 21, 30, 31, 40, 41,  //
                                         22, 23, 32, 33, 42, 43));
  EXPECT_EQ(MessageOf<InvalidArgument>([] { FrameStack(4, 3, 0); }),
            "FrameStack: depth must be >= 1, got 0");
}

}  // namespace
}  // namespace replicant::env
