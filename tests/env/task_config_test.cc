#include "env/task_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/config/document.h"
#include "base/config/edit.h"
#include "base/config/load.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/images/encode_png.h"
#include "env/renderer/scene.h"
#include "tests/env/small_task.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;

// No simulation: observes the number of its steps, with a reward of its index.
// With images all bytes of "grey" are that number, and of "rgba" 100 more.
class Counter : public Environment {
 public:
  explicit Counter(const EnvironmentOptions& options, bool has_images = false)
      : reward_(static_cast<double>(options.index)) {
    observation_spec_.arrays = {{.name = "count", .shape = Shape({})}};
    action_spec_ = {.minimum = {-1.0}, .maximum = {1.0}};
    if (!has_images) return;
    observation_spec_.arrays.push_back(
        {.name = "grey", .shape = Shape({2, 3, 1}), .dtype = DType::kU8});
    observation_spec_.arrays.push_back(
        {.name = "rgba", .shape = Shape({1, 2, 4}), .dtype = DType::kU8});
    observation_spec_.frame_size = 6 + 8;
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
    const auto count = static_cast<uint8_t>(counters_.steps);
    for (const std::span<uint8_t> images : {out.pixels, out.frame}) {
      for (size_t i = 0; i < images.size(); ++i) {
        images[i] = static_cast<uint8_t>(i < 6 ? count : 100 + count);
      }
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
       .make_environment =
           [](const EnvironmentOptions& options) {
             return std::make_unique<Counter>(options);
           }},
      {.name = "counter-seen",
       .make_environment = [](const EnvironmentOptions& options) {
         return std::make_unique<Counter>(options, /*has_images=*/true);
       }}});
}

TEST(TaskConfigTest, ThePathsOfTheSectionAreRelativeToItsFile) {
  config::Document document = config::Document::FromFile(
      "/run/config.yaml", {}, [](const std::filesystem::path&) {
        return std::string(
            "task: {mjcf: model/model.xml, suite_folder: suite, "
            "distractions: {background: {folder: ../pictures}}}\n");
      });
  TaskConfig::MakePathsAbsolute(document);
  EXPECT_EQ(config::ValueOf(document, "task.mjcf"), "/run/model/model.xml");
  EXPECT_EQ(config::ValueOf(document, "task.suite_folder"), "/run/suite");
  EXPECT_EQ(config::ValueOf(document, "task.distractions.background.folder"),
            "/pictures");
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

// In the given order, numbers and images apart.
TEST(TaskConfigTest, ShowsTheSelectedArrays) {
  TaskConfig config{.name = "counter-seen",
                    .observations = {"rgba", "grey"},
                    .has_pixels = true};
  config.pixels.frame_stack = 1;
  const auto environment =
      MakeConfiguredEnvironment(CounterTasks(), config, /*seed=*/1, 0);
  EXPECT_EQ(environment->observation_spec().state_size(), 0);
  std::vector<uint8_t> pixels(14), frame(14);
  const ObservationBuffer out{.pixels = pixels, .frame = frame};
  environment->Reset(out);
  environment->Step(std::vector{0.0}, out);
  std::vector<uint8_t> wanted(8, 101);
  wanted.insert(wanted.end(), 6, 1);
  EXPECT_EQ(pixels, wanted);
  EXPECT_EQ(frame, wanted);

  config = {.name = "counter-seen", .observations = {"count"}};
  const auto blind =
      MakeConfiguredEnvironment(CounterTasks(), config, /*seed=*/1, 0);
  EXPECT_EQ(blind->observation_spec().pixels_size(), 0);
  EXPECT_EQ(blind->observation_spec().frame_size, 0);
  double count = 0.0;
  blind->Reset({.state = {&count, 1}});
  blind->Step(std::vector{0.0}, {.state = {&count, 1}});
  EXPECT_EQ(count, 1.0);
}

TEST(TaskConfigTest, RefusesArraysThatAreNotThere) {
  const auto message = [](const std::vector<std::string>& names) {
    return MessageOf<ConfigError>([&] {
      MakeConfiguredEnvironment(CounterTasks(),
                                {.name = "counter-seen", .observations = names},
                                1, 0);
    });
  };
  EXPECT_EQ(message({"count", "gray"}),
            "task.observations: 'gray' is no array of the observation; "
            "allowed: count, grey, rgba");
  EXPECT_EQ(message({"count", "count"}),
            "task.observations: 'count' is given twice; allowed: count, grey, "
            "rgba");
}

// Of any number of channels, and through repeated steps.
TEST(TaskConfigTest, AnEnvironmentsOwnImagesAreStacked) {
  TaskConfig config{
      .name = "counter-seen", .action_repeat = 2, .has_pixels = true};
  config.pixels.frame_stack = 3;
  const auto environment =
      MakeConfiguredEnvironment(CounterTasks(), config, /*seed=*/1, 0);
  const ObservationSpec& spec = environment->observation_spec();
  EXPECT_EQ(spec.Find("grey").shape, Shape({2, 3, 3}));
  EXPECT_EQ(spec.Find("rgba").shape, Shape({1, 2, 12}));
  EXPECT_EQ(spec.frame_size, 14);
  std::vector<uint8_t> pixels(42), frame(14);
  double count = 0.0;
  const ObservationBuffer out{
      .state = {&count, 1}, .pixels = pixels, .frame = frame};
  environment->Reset(out);
  EXPECT_EQ(pixels[0] + pixels[1] + pixels[2], 0);
  for (int i = 0; i < 2; ++i) environment->Step(std::vector{0.0}, out);
  EXPECT_EQ(count, 4.0);
  // steps 0, 2 and 4, oldest first
  for (size_t p = 0; p < 6; ++p) {
    for (size_t k = 0; k < 3; ++k) EXPECT_EQ(pixels[3 * p + k], 2 * k);
  }
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(pixels[18 + i], 100 + 2 * (i / 4 % 3)) << i;
  }
  EXPECT_EQ(frame[5], 4);
  EXPECT_EQ(frame[6], 104);
  config.has_pixels = false;
  EXPECT_EQ(MessageOf<ConfigError>([&] {
              MakeConfiguredEnvironment(CounterTasks(), config, 1, 0);
            }),
            "task.pixels.enabled: false: the observation of counter-seen has "
            "images; hint: true, with an encoder of pixels");
}

TEST(TaskConfigTest, WhatOnlyASimulationHasIsRefused) {
  const auto make = [](const TaskConfig& config) {
    MakeConfiguredEnvironment(CounterTasks(), config, /*seed=*/1, /*index=*/0);
  };
  EXPECT_EQ(MessageOf<ConfigError>(
                [&] { make({.name = "counter-up", .has_pixels = true}); }),
            "task.pixels.enabled: true: counter-up is not a MuJoCo simulation, "
            "and its observation has no image; allowed: false");
  EXPECT_EQ(MessageOf<ConfigError>(
                [&] { make({.name = "counter-up", .mjcf = "a.xml"}); }),
            "task.mjcf: counter-up is not a MuJoCo simulation; allowed: empty");
  TaskConfig moved{.name = "counter-seen", .has_pixels = true};
  moved.distractions.camera.roll = 0.1;
  EXPECT_EQ(MessageOf<ConfigError>([&] { make(moved); }),
            "task.distractions: counter-seen is not a MuJoCo simulation; "
            "allowed: no camera that moves, and no background");
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

TEST(TaskConfigTest, ChangesOfPicturesWithoutPicturesAreRefused) {
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Read(
                  "disturbances: {frames: {delay: 1}}\n"
                  "distractions: {camera: {roll: 0.1}}");
            }),
            "run.yaml:1:24: disturbances.frames: of pictures, but "
            "pixels.enabled is false\n"
            "run.yaml:2:15: distractions: of pictures, but pixels.enabled is "
            "false");
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Read(
                  "pixels: {enabled: true}\n"
                  "distractions: {background: {enabled: true, videos: -1}}");
            }),
            "run.yaml:2:52: distractions.background.videos: -1 is outside [0, "
            "1000000] (number of videos, the first by name; each episode draws "
            "one; 0: all)");
  EXPECT_EQ(MessageOf<ConfigError>([] {
              Read(
                  "pixels: {enabled: true, renderer: gl}\n"
                  "distractions: {background: {enabled: true}}");
            }),
            "run.yaml:2:38: distractions.background.enabled: true with "
            "pixels.renderer gl, which draws no background; allowed: false, or "
            "renderer raycast or auto");
}

// Auto would be gl, which draws no background.
TEST(TaskConfigTest, ABackgroundBehindAModelOfGlsIsRefused) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "videos");
  AtomicWriteFile(folder.path() / "videos/0.png",
                  data::EncodePng({.height = 4, .width = 4},
                                  std::vector<uint8_t>(size_t{4} * 4 * 3)));
  TaskDefinition task = testing::DefineSmallTask(folder);
  std::string model = testing::kSmallModel;
  model.insert(model.find("<worldbody>"),
               R"(<visual><quality numslices="300"/></visual>)");
  AtomicWriteFile(task.model, model);
  const TaskRegistry registry({task});
  TaskConfig config{.name = "small-push", .has_pixels = true};
  config.distractions.background = {
      .is_enabled = true, .folder = (folder.path() / "videos").string()};
  const std::string reason = MessageOf<UnsupportedScene>([&] {
    MakeRenderer(*LoadConfiguredModel(registry, config),
                 {.kind = RendererKind::kRaycast});
  });
  EXPECT_EQ(MessageOf<ConfigError>(
                [&] { MakeConfiguredEnvironment(registry, config, 1, 0); }),
            "task.distractions.background.enabled: true, but only raycast "
            "draws a background, and not this model: " +
                reason + "; allowed: false");
}

// Frames of an environment's own images, too.
TEST(TaskConfigTest, OwnImagesArriveLate) {
  TaskConfig config{.name = "counter-seen", .has_pixels = true};
  config.pixels.frame_stack = 1;
  config.disturbances.frames.delay = 2;
  const auto environment =
      MakeConfiguredEnvironment(CounterTasks(), config, /*seed=*/1, 0);
  std::vector<uint8_t> pixels(14), seen;
  environment->Reset({.pixels = pixels});
  for (int i = 0; i < 4; ++i) {
    environment->Step(std::vector{0.0}, {.pixels = pixels});
    seen.push_back(pixels[0]);
  }
  EXPECT_EQ(seen, (std::vector<uint8_t>{0, 0, 1, 2}));
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
