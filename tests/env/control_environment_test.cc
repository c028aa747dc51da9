#include "env/control_environment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <vector>

#include "base/error.h"
#include "env/rewards.h"
#include "tests/env/small_task.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;
using testing::DefineSmallTask;
using ::testing::ElementsAre;

constexpr std::array kNoAction = {0.0, 0.0};

class ControlEnvironmentTest : public ::testing::Test {
 protected:
  std::unique_ptr<ControlEnvironment> Make(
      const ControlOptions& options = {.time_limit_s = 0.1},
      const EnvironmentOptions& environment = {}) {
    return MakeEnvironment(DefineSmallTask(folder_, options), environment);
  }

  TemporaryFolder folder_;
  std::array<double, 4> state_{};
  const ObservationBuffer out_{.state = state_};
};

TEST_F(ControlEnvironmentTest, DescribesItsObservationsInOrder) {
  const auto environment = Make();
  const ObservationSpec& spec = environment->observation_spec();
  ASSERT_EQ(spec.arrays.size(), 3U);
  EXPECT_EQ(spec.arrays[0].name, "position");
  EXPECT_EQ(spec.arrays[0].shape, Shape({1}));
  EXPECT_EQ(spec.arrays[1].name, "speed");
  EXPECT_EQ(spec.arrays[1].shape, Shape());
  EXPECT_EQ(spec.arrays[2].name, "both");
  EXPECT_EQ(spec.arrays[2].shape, Shape({1, 2}));
  EXPECT_EQ(spec.arrays[2].dtype, DType::kF64);
  EXPECT_EQ(spec.state_size(), 4);
  EXPECT_EQ(spec.pixels_size(), 0);
  EXPECT_EQ(spec.Offset("both"), 2);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { spec.Find("posiion"); }),
            "observation: no array named 'posiion'; did you mean 'position'?");
}

TEST_F(ControlEnvironmentTest, BoundsOfActionsAreThoseOfTheActuators) {
  const auto environment = Make();
  EXPECT_THAT(environment->action_spec().minimum, ElementsAre(-2.0, -1e10));
  EXPECT_THAT(environment->action_spec().maximum, ElementsAre(3.0, 1e10));
}

TEST_F(ControlEnvironmentTest, IsCutOffAtTheTimeLimitWithDiscountOne) {
  const auto environment = Make({.time_limit_s = 0.1});
  EXPECT_TRUE(environment->Reset(out_).IsFirst());
  for (int t = 1; t < 10; ++t) {
    EXPECT_EQ(environment->Step(kNoAction, out_).step_type, StepType::kMid);
  }
  const TimeStep last = environment->Step(kNoAction, out_);
  EXPECT_TRUE(last.IsLast());
  EXPECT_EQ(last.discount, 1.0);
  EXPECT_EQ(last.reward, state_[0]);
}

// Would catch a learner that bootstraps from a state that is the end.
TEST_F(ControlEnvironmentTest, ATaskThatEndsAtTheTimeLimitTerminates) {
  for (const bool is_of_suite : {false, true}) {
    const auto environment =
        Make({.time_limit_s = 0.02, .is_of_suite = is_of_suite});
    environment->Reset(out_);
    EXPECT_EQ(environment->Step(kNoAction, out_).step_type, StepType::kMid);
    environment->mutable_physics().mutable_data().qpos[0] = 6.0;
    const TimeStep last = environment->Step(kNoAction, out_);
    EXPECT_TRUE(last.IsLast());
    // dm_control does not ask the task there
    EXPECT_EQ(last.discount, is_of_suite ? 1.0 : 0.0);
    EXPECT_EQ(environment->HasUnitRewards(), is_of_suite);
  }
}

// Quotients that rounding has made a little more than the whole number.
TEST_F(ControlEnvironmentTest, ATimeLimitIsAWholeNumberOfSteps) {
  const auto limit = [&](double time_limit_s, double control_timestep_s) {
    return Make({.time_limit_s = time_limit_s,
                 .control_timestep_s = control_timestep_s})
        ->step_limit();
  };
  ASSERT_GT(0.9 / (0.01 * 3), 30.0);
  EXPECT_EQ(limit(0.9, 0.03), 30.0);
  EXPECT_EQ(limit(0.3, 0.1), 3.0);
  // one that is not a multiple ends with the step that reaches it
  EXPECT_NEAR(limit(0.95, 0.1), 9.5, 1e-9);
  EXPECT_EQ(limit(kInfinity, 0.1), kInfinity);
}

TEST_F(ControlEnvironmentTest, EndsWithDiscountZeroWhereTheTaskEnds) {
  const auto environment = Make({.time_limit_s = kInfinity});
  environment->Reset(out_);
  TimeStep step;
  for (int t = 0; t < 1000 && !step.IsLast(); ++t) {
    step = environment->Step(std::array{3.0, 20.0}, out_);
  }
  EXPECT_TRUE(step.IsLast());
  EXPECT_EQ(step.discount, 0.0);
  EXPECT_GT(state_[0], 5.0);
}

TEST_F(ControlEnvironmentTest, AStepAfterTheLastStartsAnEpisode) {
  const auto environment = Make({.time_limit_s = 0.01});
  // also before the first reset
  EXPECT_TRUE(environment->Step(kNoAction, out_).IsFirst());
  EXPECT_TRUE(environment->Step(kNoAction, out_).IsLast());
  EXPECT_TRUE(environment->Step(kNoAction, out_).IsFirst());
  EXPECT_EQ(environment->counters().episodes, 2);
  EXPECT_EQ(environment->counters().steps, 1);
}

TEST_F(ControlEnvironmentTest, AnActionLastsTheControlTimestep) {
  const auto environment =
      Make({.time_limit_s = 1.0, .control_timestep_s = 0.05});
  EXPECT_EQ(environment->physics_steps_per_action(), 5);
  environment->Reset(out_);
  environment->Step(std::array{1.0, 0.0}, out_);
  // one newton on one kilogram for 50 ms
  EXPECT_NEAR(state_[1], 0.05, 1e-12);
  EXPECT_NEAR(environment->physics().data().time, 0.05, 1e-12);
}

TEST_F(ControlEnvironmentTest, AnEpisodesStartDependsOnItsNumberOnly) {
  const auto straight = Make();
  const auto interrupted = Make();
  std::vector<double> starts;
  for (int episode = 0; episode < 3; ++episode) {
    straight->Reset(out_);
    starts.push_back(state_[0]);
  }
  EXPECT_NE(starts[0], starts[1]);
  for (int episode = 0; episode < 3; ++episode) {
    interrupted->Reset(out_);
    EXPECT_EQ(state_[0], starts[static_cast<size_t>(episode)]);
    for (int t = 0; t < episode; ++t) interrupted->Step(kNoAction, out_);
  }
}

TEST_F(ControlEnvironmentTest, SeedsAndIndicesGiveDifferentStarts) {
  std::vector<double> starts;
  for (const EnvironmentOptions& options :
       {EnvironmentOptions{.seed = 0, .index = 0},
        EnvironmentOptions{.seed = 1, .index = 0},
        EnvironmentOptions{.seed = 0, .index = 1}}) {
    Make({.time_limit_s = 0.1}, options)->Reset(out_);
    starts.push_back(state_[0]);
  }
  EXPECT_NE(starts[0], starts[1]);
  EXPECT_NE(starts[0], starts[2]);
  EXPECT_NE(starts[1], starts[2]);
}

TEST_F(ControlEnvironmentTest, WhatIsNotFiniteInAnActionIsRefused) {
  const auto environment = Make();
  environment->Reset(out_);
  const double position = environment->physics().qpos()[0];
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              environment->Step(std::array{0.0, nan}, out_);
            }),
            "small-push: action[1] is nan, but must be finite");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              environment->Step(std::array{-kInfinity, 0.0}, out_);
            }),
            "small-push: action[0] is -inf, but must be finite");
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { environment->Step(std::array{0.0}, out_); }),
            "small-push: action has 1 elements, expected 2");
  EXPECT_EQ(environment->physics().qpos()[0], position);
  EXPECT_EQ(environment->counters().steps, 0);
}

TEST_F(ControlEnvironmentTest, BuffersOfAWrongSizeAreRefused) {
  const auto environment = Make();
  std::array<double, 3> small{};
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { environment->Reset({.state = small}); }),
      "small-push: state buffer has 3 elements, expected 4");
  std::array<uint8_t, 3> pixels{};
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { environment->Reset({.pixels = pixels}); }),
            "small-push: pixels buffer has 3 elements, expected 0; hint: this "
            "environment does not render, wrap it in one that does");
  EXPECT_EQ(environment->counters().episodes, 0);
}

TEST_F(ControlEnvironmentTest, AnEmptyBufferIsNotWritten) {
  const auto environment = Make();
  environment->Reset({});
  EXPECT_EQ(environment->Step(kNoAction, {}).step_type, StepType::kMid);
}

TEST_F(ControlEnvironmentTest, ADivergedPhysicsEndsTheEpisodeAndIsCounted) {
  const auto environment = Make({.time_limit_s = kInfinity});
  environment->Reset(out_);
  environment->mutable_physics().mutable_qvel()[0] = 1e12;
  const TimeStep step = environment->Step(kNoAction, out_);
  EXPECT_TRUE(step.IsLast());
  EXPECT_EQ(step.discount, 0.0);
  EXPECT_EQ(step.reward, 0.0);
  EXPECT_EQ(environment->counters().divergences, 1);
  // the default pose, not a number that no network should see
  EXPECT_THAT(state_, ElementsAre(0.0, 0.0, 0.0, 0.0));

  EXPECT_TRUE(environment->Step(kNoAction, out_).IsFirst());
  EXPECT_EQ(environment->Step(kNoAction, out_).step_type, StepType::kMid);
  EXPECT_EQ(environment->counters().divergences, 1);
}

TEST_F(ControlEnvironmentTest, AnActionBeyondMujocosNumbersIsADivergence) {
  const auto environment = Make();
  environment->Reset(out_);
  EXPECT_TRUE(environment->Step(std::array{0.0, 1e11}, out_).IsLast());
  EXPECT_EQ(environment->counters().divergences, 1);
}

TEST_F(ControlEnvironmentTest, ContinuesExactlyFromASavedState) {
  const auto first = Make({.time_limit_s = 1.0}, {.seed = 7});
  const auto second = Make({.time_limit_s = 1.0}, {.seed = 8});
  first->Reset(out_);
  for (int t = 0; t < 5; ++t) first->Step(std::array{1.0, 0.3}, out_);
  const mjModel& model = first->physics().model();
  std::vector<double> saved(
      static_cast<size_t>(mj_stateSize(&model, mjSTATE_INTEGRATION)));
  mj_getState(&model, &first->physics().data(), saved.data(),
              mjSTATE_INTEGRATION);
  first->Step(std::array{-1.0, 0.2}, out_);
  const auto expected = state_;

  EXPECT_TRUE(second->ResetTo(saved, out_).IsFirst());
  second->Step(std::array{-1.0, 0.2}, out_);
  EXPECT_EQ(state_, expected);

  saved.pop_back();
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { second->ResetTo(saved, out_); }),
            fmt::format("small-push: state has {} elements, expected {}",
                        saved.size(), saved.size() + 1));
}

// Which bodies sleep is not in MuJoCo's states. Right after a reset, none does
// that the reset of the other environment would not put to sleep too.
TEST_F(ControlEnvironmentTest, StatesOfModelsThatSleepAreThoseOfResets) {
  TaskDefinition task = DefineSmallTask(folder_, {.time_limit_s = 1.0});
  task.edit = [](mjSpec& spec) { spec.option.enableflags |= mjENBL_SLEEP; };
  const auto first = MakeEnvironment(task, {.seed = 7});
  const auto second = MakeEnvironment(task, {.seed = 8});
  const auto save = [&first] {
    const mjModel& model = first->physics().model();
    std::vector<double> state(
        static_cast<size_t>(mj_stateSize(&model, mjSTATE_INTEGRATION)));
    mj_getState(&model, &first->physics().data(), state.data(),
                mjSTATE_INTEGRATION);
    return state;
  };
  first->Reset(out_);
  const std::vector<double> start = save();
  for (int t = 0; t < 5; ++t) first->Step(std::array{1.0, 0.3}, out_);
  const auto expected = state_;
  second->Reset(out_);
  for (int t = 0; t < 50; ++t) second->Step(kNoAction, out_);
  second->ResetTo(start, out_);
  for (int t = 0; t < 5; ++t) second->Step(std::array{1.0, 0.3}, out_);
  EXPECT_EQ(state_, expected);

  EXPECT_EQ(MessageOf<InvalidArgument>([&] { second->ResetTo(save(), out_); }),
            "small-push: the state of time 0.05 s does not say which bodies "
            "sleep, and the model has <flag sleep=\"enable\"/>; allowed: a "
            "state right after a reset");
}

TEST_F(ControlEnvironmentTest, TimestepsThatDoNotFitAreRefused) {
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              Make({.time_limit_s = 1.0, .control_timestep_s = 0.015});
            }),
            "small-push: control timestep 0.015 s must be a whole multiple of "
            "the physics timestep 0.01 s");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              Make({.time_limit_s = 1.0, .control_timestep_s = kInfinity});
            }),
            "small-push: control timestep inf s must be a whole multiple of "
            "the physics timestep 0.01 s");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { Make({.time_limit_s = 0.0}); }),
            "small-push: time limit must be > 0 s, got 0");
}

}  // namespace
}  // namespace replicant::env
