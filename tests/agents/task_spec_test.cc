#include "agents/task_spec.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "env/task_config.h"
#include "env/tasks/suite.h"
#include "tests/support/message_of.h"

namespace replicant::agents {
namespace {

using testing::MessageOf;

std::unique_ptr<env::Environment> Make(const env::TaskConfig& config) {
  return env::MakeConfiguredEnvironment(env::TaskRegistry(env::SuiteTasks()),
                                        config, /*seed=*/1, /*index=*/0);
}

TEST(TaskSpecTest, OfAStateTask) {
  const env::TaskConfig config = {.name = "cheetah-run", .action_repeat = 4};
  const TaskSpec spec = MakeTaskSpec(config, *Make(config));
  EXPECT_EQ(spec.observation, Shape({17}));
  EXPECT_EQ(spec.action_size(), 6);
  EXPECT_EQ(spec.observation_bytes(), 17 * 4);
  EXPECT_EQ(spec.action_bytes(), 6 * 4);
  EXPECT_EQ(spec.frame_bytes(), 0);
  EXPECT_EQ(spec.action_repeat, 4);
}

// The return is the same, whichever way rewards are reduced, also of a last
// step that makes fewer control steps.
TEST(TaskSpecTest, RewardsOfRepeatedActions) {
  env::TaskConfig config = {.name = "cheetah-run", .action_repeat = 4};
  const TaskSpec mean = MakeTaskSpec(config, *Make(config));
  EXPECT_EQ(mean.largest_reward, 1.0);
  EXPECT_EQ(mean.SumOfRewards({.reward = 0.5, .control_steps = 4}), 2.0);
  EXPECT_EQ(mean.SumOfRewards({.reward = 0.5, .control_steps = 3}), 1.5);
  config.action_repeat_reward = env::RewardReduction::kSum;
  const TaskSpec sum = MakeTaskSpec(config, *Make(config));
  EXPECT_EQ(sum.largest_reward, 4.0);
  EXPECT_EQ(sum.SumOfRewards({.reward = 2.0, .control_steps = 4}), 2.0);
}

TEST(TaskSpecTest, OfAPixelTask) {
  env::TaskConfig config = {
      .name = "cartpole-swingup",
      .has_pixels = true,
      .pixels = {.camera = {.height = 16, .width = 24}, .frame_stack = 2}};
  const TaskSpec spec = MakeTaskSpec(config, *Make(config));
  EXPECT_EQ(spec.observation, Shape({16, 24, 6}));
  EXPECT_EQ(spec.observation_bytes(), 0);
  EXPECT_EQ(spec.frame_bytes(), 16 * 24 * 3);

  config.has_state_beside_pixels = true;
  const TaskSpec both = MakeTaskSpec(config, *Make(config));
  EXPECT_EQ(both.observation, spec.observation);
  EXPECT_EQ(both.state_size, 5);
  EXPECT_EQ(both.observation_bytes(), 5 * 4);
  EXPECT_EQ(both.frame_bytes(), spec.frame_bytes());
  // without pixels the state is the observation already
  config.has_pixels = false;
  EXPECT_EQ(MakeTaskSpec(config, *Make(config)).state_size, 0);
}

TEST(TaskSpecTest, OfSeveralCameras) {
  env::TaskConfig config = {.name = "cheetah-run",
                            .has_pixels = true,
                            .has_state_beside_pixels = true};
  config.pixels = {.cameras = {{.camera = "side", .height = 16, .width = 24},
                               {.camera = "back", .height = 8, .width = 8}},
                   .frame_stack = 2};
  const TaskSpec spec = MakeTaskSpec(config, *Make(config));
  EXPECT_EQ(spec.images,
            (std::vector<ImageSpec>{{"pixels/side", Shape({16, 24, 6})},
                                    {"pixels/back", Shape({8, 8, 6})}}));
  EXPECT_EQ(spec.AllImages(), spec.images);
  EXPECT_EQ(spec.observation, Shape({(16 * 24 + 8 * 8) * 6}));
  EXPECT_EQ(spec.frame_bytes(), (16 * 24 + 8 * 8) * 3);
  EXPECT_EQ(spec.state_size, 17);
  // a list of one is that camera
  config.pixels.cameras.resize(1);
  const TaskSpec one = MakeTaskSpec(config, *Make(config));
  EXPECT_TRUE(one.images.empty());
  EXPECT_EQ(one.observation, Shape({16, 24, 6}));
  EXPECT_EQ(one.AllImages(),
            (std::vector<ImageSpec>{{"pixels", Shape({16, 24, 6})}}));
}

// Of cameras whose renderer lacks its device, before a background that lacks
// its folder.
TEST(TaskSpecTest, OfATaskThatNobodyPlays) {
  const env::TaskRegistry registry(env::SuiteTasks());
  env::TaskConfig config = {.name = "cheetah-run",
                            .observations = {"velocity"},
                            .has_pixels = true,
                            .has_state_beside_pixels = true};
  config.pixels = {.cameras = {{.camera = "side", .height = 16, .width = 24},
                               {.camera = "back", .height = 8, .width = 8}},
                   .frame_stack = 2};
  const TaskSpec played = MakeTaskSpec(config, *Make(config));
  for (env::CameraOptions& camera : config.pixels.cameras) {
    camera.renderer = {.kind = env::RendererKind::kGl,
                       .gl_platform = env::GlPlatform::kEglDevice,
                       .egl_device = 63};
  }
  config.distractions.background = {.is_enabled = true, .folder = "/nowhere"};
  const TaskSpec spec = MakeTaskSpec(config, registry);
  EXPECT_EQ(spec.images, played.images);
  EXPECT_EQ(spec.observation, played.observation);
  EXPECT_EQ(spec.state_size, 9);
  EXPECT_EQ(spec.frame_bytes(), played.frame_bytes());
  EXPECT_EQ(spec.action_minimum, played.action_minimum);
  EXPECT_TRUE(spec.has_unit_rewards);
  config.pixels.cameras.clear();
  EXPECT_EQ(MakeTaskSpec(config, registry).observation, Shape({84, 84, 6}));
}

TEST(TaskSpecTest, ScalesActions) {
  const TaskSpec spec{.action_minimum = {-2.0, 0.0},
                      .action_maximum = {4.0, 1.0}};
  std::array<double, 2> out{};
  spec.ToTaskRange(std::array{-1.0F, 0.5F}, out);
  EXPECT_DOUBLE_EQ(out[0], -2.0);
  EXPECT_DOUBLE_EQ(out[1], 0.75);
}

// -0.1 + (0.3 - -0.1) is 0.30000000000000004.
TEST(TaskSpecTest, AnActionAtABoundIsInTheRange) {
  const TaskSpec spec{.action_minimum = {-0.1}, .action_maximum = {0.3}};
  double out = 0.0;
  spec.ToTaskRange(std::array{1.0F}, {&out, 1});
  EXPECT_EQ(out, 0.3);
  spec.ToTaskRange(std::array{-1.0F}, {&out, 1});
  EXPECT_EQ(out, -0.1);
}

TEST(TaskSpecTest, KnowsTheRewardsOfTheSuite) {
  const env::TaskConfig config = {.name = "cheetah-run", .action_repeat = 4};
  EXPECT_TRUE(MakeTaskSpec(config, *Make(config)).has_unit_rewards);
}

TEST(TaskSpecTest, RefusesActionsWithoutBounds) {
  const env::TaskConfig config = {.name = "lqr-lqr_2_1"};
  const auto environment = Make(config);
  EXPECT_EQ(MessageOf<ConfigError>([&] { MakeTaskSpec(config, *environment); }),
            "task.name: action 0 of lqr-lqr_2_1 has no bounds; an agent needs "
            "them; hint: a ctrlrange in the model, or bounds of the "
            "environment's action space");
}

}  // namespace
}  // namespace replicant::agents
