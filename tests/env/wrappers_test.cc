#include "env/wrappers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "env/rewards.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;
using ::testing::ElementsAre;

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
  EXPECT_EQ(mean.control_timestep_s(), 4 * plain->control_timestep_s());
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
      "ActionRepeat: state buffer has 2 elements, expected 4");
  EXPECT_EQ(repeat.counters().steps, 0);
}

// An environment whose next step has the numbers that are set here.
class Altered : public EnvironmentWrapper {
 public:
  using EnvironmentWrapper::EnvironmentWrapper;
  TimeStep Reset(const ObservationBuffer& out) override {
    const TimeStep step = inner().Reset(out);
    Alter(out);
    return step;
  }
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override {
    TimeStep step = inner().Step(action, out);
    Alter(out);
    if (step.IsFirst()) return step;
    step.reward = reward.value_or(step.reward);
    step.discount = step_discounts.empty() ? discount : step_discounts.front();
    if (!step_discounts.empty()) step_discounts.erase(step_discounts.begin());
    return step;
  }
  void Observe(const ObservationBuffer& out) override {
    inner().Observe(out);
    Alter(out);
  }

  std::optional<double> reward;
  double discount = 1.0;
  std::vector<double> step_discounts;  // of the next steps, if there are any
  std::optional<double> last_element;  // of the observation

 private:
  void Alter(const ObservationBuffer& out) const {
    if (last_element && !out.state.empty()) out.state.back() = *last_element;
  }
};

// Would catch the loss of all discounts but the last one.
TEST_F(WrappersTest, ActionRepeatWeighsRewardsByTheDiscountsBefore) {
  for (const auto reduction : {RewardReduction::kMean, RewardReduction::kSum}) {
    auto owned = std::make_unique<Altered>(Make(1.0));
    Altered& altered = *owned;
    ActionRepeat repeat(std::move(owned), 4, reduction);
    altered.reward = 1.0;
    altered.discount = 0.5;
    repeat.Reset(out_);
    TimeStep step = repeat.Step(kPush, out_);
    EXPECT_EQ(step.discount, 0.0625);
    const double sum = 1.0 + 0.5 + 0.25 + 0.125;
    EXPECT_EQ(step.reward, reduction == RewardReduction::kMean ? sum / 4 : sum);
    // a termination that is no last step
    altered.step_discounts = {1.0, 0.0, 1.0, 1.0};
    step = repeat.Step(kPush, out_);
    EXPECT_EQ(step.discount, 0.0);
    EXPECT_EQ(step.reward, reduction == RewardReduction::kMean ? 0.5 : 2.0);
  }
}

class NumberCheckTest : public WrappersTest {
 protected:
  NumberCheckTest() {
    auto owned = std::make_unique<Altered>(Make(1.0));
    altered_ = owned.get();
    check_.emplace(std::move(owned), "own", /*index=*/3);
  }
  std::string MessageOfStep() {
    return MessageOf<InvalidArgument>([&] { check_->Step(kPush, out_); });
  }
  Altered* altered_ = nullptr;
  std::optional<NumberCheck> check_;
};

TEST_F(NumberCheckTest, NamesABadNumberAndEndsTheEpisode) {
  check_->Reset(out_);
  check_->Step(kPush, out_);
  altered_->last_element = std::nan("");
  EXPECT_EQ(MessageOfStep(),
            "own: environment 3, episode 0, step 2: observation 'both'[1] is "
            "nan; want finite numbers of float32");
  // in a reset
  EXPECT_EQ(MessageOfStep(),
            "own: environment 3, episode 1, step 0: observation 'both'[1] is "
            "nan; want finite numbers of float32");
  altered_->last_element.reset();
  EXPECT_TRUE(check_->Step(kPush, out_).IsFirst());
  altered_->reward = -kInfinity;
  EXPECT_EQ(MessageOfStep(),
            "own: environment 3, episode 2, step 1: the reward is -inf; want "
            "finite numbers of float32");
  check_->Reset(out_);
  altered_->reward = 0.5;
  altered_->discount = 1.5;
  EXPECT_EQ(MessageOfStep(),
            "own: environment 3, episode 3, step 1: the discount is 1.5; want "
            "one in [0, 1]");
}

// The networks and the replay would make infinities of them.
TEST_F(NumberCheckTest, RefusesNumbersBeyondFloat32) {
  check_->Reset(out_);
  altered_->last_element = 1e300;
  EXPECT_EQ(MessageOfStep(),
            "own: environment 3, episode 0, step 1: observation 'both'[1] is "
            "1e+300; want finite numbers of float32");
  altered_->last_element.reset();
  check_->Reset(out_);
  altered_->reward = 3.5e38;
  EXPECT_EQ(MessageOfStep(),
            "own: environment 3, episode 1, step 1: the reward is 3.5e+38; "
            "want finite numbers of float32");
}

// Would catch an action repeat whose last observation is not checked.
TEST_F(NumberCheckTest, ChecksWhatIsObservedAfterAStep) {
  check_->Reset(out_);
  altered_->last_element = kInfinity;
  EXPECT_EQ(check_->Step(kPush, {}).step_type, StepType::kMid);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { check_->Observe(out_); }),
            "own: environment 3, episode 0, step 1: observation 'both'[1] is "
            "inf; want finite numbers of float32");
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

// Bytes first, first + 1, ... as the next frame of a stack.
void WriteFrame(FrameStack& stack, uint8_t first) {
  std::iota(stack.frame().begin(), stack.frame().end(), first);
}

std::vector<uint8_t> Copy(const FrameStack& stack, size_t size) {
  std::vector<uint8_t> out(size + 1, 255);
  stack.CopyTo(std::span(out).first(size));
  EXPECT_EQ(out.back(), 255) << "written beyond the end";
  out.pop_back();
  return out;
}

TEST(FrameStackTest, HoldsTheLastFramesPerPixelOldestFirst) {
  FrameStack stack(/*pixels=*/2, /*depth=*/2);
  WriteFrame(stack, 10);
  stack.Fill();
  EXPECT_THAT(Copy(stack, 12),
              ElementsAre(10, 11, 12, 10, 11, 12, 13, 14, 15, 13, 14, 15));
  WriteFrame(stack, 20);
  stack.Push();
  EXPECT_THAT(Copy(stack, 12),
              ElementsAre(10, 11, 12, 20, 21, 22, 13, 14, 15, 23, 24, 25));
  WriteFrame(stack, 30);
  // what is not pushed yet is not seen
  EXPECT_EQ(Copy(stack, 12)[3], 20);
  stack.Push();
  EXPECT_THAT(Copy(stack, 12),
              ElementsAre(20, 21, 22, 30, 31, 32, 23, 24, 25, 33, 34, 35));
}

// Every depth against frames kept in a list, also of as many pixels as are
// taken together.
TEST(FrameStackTest, EqualsAListOfFramesAtEveryDepth) {
  for (size_t i = 0; i < 24; ++i) {
    const size_t pixels = std::array<size_t, 4>{1, 5, 262, 783}[i % 4];
    const size_t depth = 1 + i / 4;
    FrameStack stack(static_cast<int64_t>(pixels), static_cast<int64_t>(depth));
    std::vector<std::vector<uint8_t>> frames;
    for (uint8_t t = 0; t < 20; ++t) {
      WriteFrame(stack, static_cast<uint8_t>(7 * t));
      // an episode starts with every seventh frame
      if (t % 7 == 0) frames.clear();
      frames.emplace_back(stack.frame().begin(), stack.frame().end());
      t % 7 == 0 ? stack.Fill() : stack.Push();
      const std::vector<uint8_t> out = Copy(stack, pixels * depth * 3);
      for (size_t k = 0; k < depth; ++k) {
        const size_t back = std::min(depth - k, frames.size());
        const auto& frame = frames[frames.size() - back];
        for (size_t b = 0; b < pixels * 3; ++b) {
          ASSERT_EQ(out[(b / 3 * depth + k) * 3 + b % 3], frame[b]);
        }
      }
    }
  }
}

TEST(FrameStackTest, RefusesADepthOutOfRange) {
  for (const int64_t depth : {0, 65}) {
    EXPECT_EQ(
        MessageOf<InvalidArgument>([&] { FrameStack(4, depth); }),
        "FrameStack: depth must be in [1, 64], got " + std::to_string(depth));
  }
}

TEST(FrameStackDeathTest, CopyingWithoutAFrameIsABug) {
  const FrameStack stack(1, 1);
  std::vector<uint8_t> out(3);
  EXPECT_DEATH(stack.CopyTo(out), "0 frames, 3 bytes");
}

}  // namespace
}  // namespace replicant::env
