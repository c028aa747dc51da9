#include "env/task_config.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using testing::MessageOf;

// No simulation: observes the number of its steps, with a reward of its index.
class Counter : public Environment {
 public:
  explicit Counter(const EnvironmentOptions& options)
      : reward_(static_cast<double>(options.index)) {
    observation_spec_.arrays = {{.name = "count", .shape = Shape({})}};
    action_spec_ = {.minimum = {-1.0}, .maximum = {1.0}};
  }

  const ObservationSpec& observation_spec() const override {
    return observation_spec_;
  }
  const ActionSpec& action_spec() const override { return action_spec_; }
  TimeStep Reset(const ObservationBuffer& out) override {
    counters_.steps = 0;
    Observe(out);
    return {};
  }
  TimeStep Step(std::span<const double> /*action*/,
                const ObservationBuffer& out) override {
    ++counters_.steps;
    Observe(out);
    return {.step_type = StepType::kMid, .reward = reward_};
  }
  void SeekEpisode(int64_t /*episode*/) override {}
  void Observe(const ObservationBuffer& out) override {
    if (!out.state.empty()) {
      out.state[0] = static_cast<double>(counters_.steps);
    }
  }
  double control_timestep_s() const override { return 0.5; }
  const Physics& physics() const override { throw Error("none"); }
  Physics& mutable_physics() override { throw Error("none"); }
  bool ResetChangesAssets() const override { return false; }
  const EnvironmentCounters& counters() const override { return counters_; }

 private:
  const double reward_;
  ObservationSpec observation_spec_;
  ActionSpec action_spec_;
  EnvironmentCounters counters_;
};

TaskRegistry CounterTasks() {
  return TaskRegistry(std::vector<TaskDefinition>{
      {.name = "counter-up",
       .make_environment = [](const EnvironmentOptions& options) {
         return std::make_unique<Counter>(options);
       }}});
}

TEST(TaskConfigTest, AnEnvironmentWithoutAModelIsMadeAndRepeated) {
  const auto environments = MakeConfiguredEnvironments(
      CounterTasks(),
      {.name = "counter-up",
       .action_repeat = 3,
       .action_repeat_reward = RewardReduction::kSum},
      /*seed=*/1, /*first_index=*/4, /*count=*/2);
  ASSERT_EQ(environments.size(), 2U);
  double count = -1.0;
  const ObservationBuffer out{.state = {&count, 1}};
  const std::vector<double> action = {0.0};
  environments[1]->Reset(out);
  EXPECT_EQ(count, 0.0);
  EXPECT_EQ(environments[1]->Step(action, out).reward, 15.0);
  EXPECT_EQ(count, 3.0);
  EXPECT_EQ(environments[1]->control_timestep_s(), 1.5);
}

TEST(TaskConfigTest, WhatOnlyASimulationHasIsRefused) {
  const auto make = [](const TaskConfig& config) {
    MakeConfiguredEnvironment(CounterTasks(), config, /*seed=*/1, /*index=*/0);
  };
  EXPECT_EQ(MessageOf<ConfigError>(
                [&] { make({.name = "counter-up", .has_pixels = true}); }),
            "task.pixels.enabled: true: counter-up is not a MuJoCo simulation; "
            "allowed: false");
  EXPECT_EQ(MessageOf<ConfigError>(
                [&] { make({.name = "counter-up", .mjcf = "a.xml"}); }),
            "task.mjcf: counter-up is not a MuJoCo simulation; allowed: empty");
}

TaskConfig Read(const std::string& text) {
  return config::Load<TaskConfig>(config::Document::FromText("run.yaml", text))
      .config;
}

TEST(TaskConfigTest, SeveralCamerasHaveSizesOfTheirOwnOrShareOne) {
  TaskConfig config = Read(
      "pixels: {enabled: true, height: 64, width: 48, renderer: gl, cameras: "
      "[front, -1]}");
  ASSERT_EQ(config.pixels.Cameras().size(), 2U);
  EXPECT_EQ(config.pixels.cameras[0].camera, "front");
  EXPECT_EQ(config.pixels.cameras[1].camera, "-1");
  for (const CameraOptions& camera : config.pixels.cameras) {
    EXPECT_EQ(camera.height, 64);
    EXPECT_EQ(camera.width, 48);
    EXPECT_EQ(camera.renderer.kind, RendererKind::kGl);
  }
  config = Read("pixels: {cameras: [front, wrist], heights: [84, 32]}");
  EXPECT_EQ(config.pixels.cameras[1].height, 32);
  EXPECT_EQ(config.pixels.cameras[1].width, 84);
  config = Read("pixels: {camera: top}");
  ASSERT_EQ(config.pixels.Cameras().size(), 1U);
  EXPECT_EQ(config.pixels.Cameras()[0].camera, "top");
}

TEST(TaskConfigTest, CamerasThatDoNotFitAreRefused) {
  EXPECT_EQ(
      MessageOf<ConfigError>([] {
        Read("pixels: {cameras: [front, wrist, front], widths: [84, 84]}");
      }),
      "run.yaml:1:19: pixels.cameras: want each camera once, got 'front' 2 "
      "times\n"
      "run.yaml:1:50: pixels.widths: want one for each of the 3 cameras, or "
      "none; got 2");
}

}  // namespace
}  // namespace replicant::env
