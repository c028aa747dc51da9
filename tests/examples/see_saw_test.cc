// The example of docs/environments.md: a task of one's own runs through the
// same registry, configuration and wrappers as the suite's.
#include "examples/own_task/see_saw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

#include "base/config/load.h"
#include "base/error.h"
#include "env/task_config.h"
#include "env/tasks/suite.h"
#include "env/vector_environment.h"

namespace replicant::env {
namespace {

const std::filesystem::path kModel =
    std::filesystem::path(REPLICANT_EXAMPLE_FOLDER) / "see_saw.xml";

TaskConfig FromYaml(const std::string& yaml) {
  return config::Load<TaskConfig>(config::Document::FromText("run.yaml", yaml))
      .config;
}

TEST(SeeSawTest, RunsFromYamlByItsNameAndAModelFile) {
  TaskRegistry registry(SuiteTasks());
  // registered without a model: YAML names the file
  registry.Add(SeeSawTask("/nowhere/see_saw.xml"));
  const TaskConfig task =
      FromYaml("name: example-see_saw\nmjcf: " + kModel.string() +
               "\naction_repeat: 2\n");
  const auto environment =
      MakeConfiguredEnvironment(registry, task, /*seed=*/1, /*index=*/0);
  EXPECT_EQ(environment->observation_spec().state_size(), 5);
  EXPECT_EQ(environment->action_spec().size(), 1);

  std::array<double, 5> state{};
  EXPECT_TRUE(environment->Reset({.state = state}).IsFirst());
  int steps = 0;
  TimeStep step;
  while (!step.IsLast()) {
    step = environment->Step(std::array{0.0}, {.state = state});
    EXPECT_GE(step.reward, 0.0);
    EXPECT_LE(step.reward, 1.0);
    ++steps;
  }
  // 10 s of 20 ms, two to a step
  EXPECT_EQ(steps, 250);
  EXPECT_EQ(environment->counters().divergences, 0);
}

TEST(SeeSawTest, IsSeenThroughTheSameWrappers) {
  TaskRegistry registry;
  registry.Add(SeeSawTask(kModel));
  const TaskConfig task = FromYaml(
      "name: example-see_saw\naction_repeat: 2\n"
      "pixels: {enabled: true, height: 40, width: 60, camera: side}\n");
  VectorEnvironment batch(MakeConfiguredEnvironments(registry, task, /*seed=*/1,
                                                     /*first_index=*/0, 3),
                          {.threads = 2});
  const ObservationSpec& spec = batch.observation_spec();
  EXPECT_EQ(spec.Find("pixels").shape, Shape({40, 60, 9}));

  std::vector<uint8_t> pixels(static_cast<size_t>(3 * spec.pixels_size()));
  std::vector<TimeStep> steps(3);
  batch.Reset({.pixels = pixels, .steps = steps});
  const std::vector<uint8_t> start = pixels;
  for (int t = 0; t < 5; ++t) {
    batch.Step(std::vector<double>(3, 1.0), {.pixels = pixels, .steps = steps});
  }
  // the beam of each has tilted
  for (size_t i = 0; i < 3; ++i) {
    const auto begin = static_cast<std::ptrdiff_t>(i) * spec.pixels_size();
    EXPECT_FALSE(std::equal(pixels.begin() + begin,
                            pixels.begin() + begin + spec.pixels_size(),
                            start.begin() + begin));
  }
}

TEST(SeeSawTest, HasAMeshAndATexture) {
  const MjModelPtr model = LoadModel(SeeSawTask(kModel), {});
  EXPECT_EQ(model->nmesh, 1);
  EXPECT_EQ(model->ntex, 1);
  EXPECT_EQ(model->ncam, 1);
}

TEST(SeeSawTest, StepsInABatchOnTwoThreads) {
  const TaskDefinition task = SeeSawTask(kModel);
  const MjModelPtr model = LoadModel(task, {});
  std::vector<std::unique_ptr<Environment>> environments;
  environments.reserve(4);
  for (int i = 0; i < 4; ++i) {
    environments.push_back(MakeEnvironment(task, {.index = i}, *model));
  }
  VectorEnvironment batch(std::move(environments), {.threads = 2});
  std::vector<double> state(20);
  std::vector<TimeStep> steps(4);
  batch.Reset({.state = state, .steps = steps});
  batch.Step(std::vector<double>(4, 0.5), {.state = state, .steps = steps});
  EXPECT_EQ(steps[3].step_type, StepType::kMid);
}

TEST(TaskConfigTest, ReportsEveryProblem) {
  try {
    FromYaml(
        "nam: x\naction_repeat: 0\naction_repeat_reward: max\n"
        "pixels: {renderer: opengl}\n");
    FAIL() << "no ConfigError";
  } catch (const ConfigError& e) {
    EXPECT_STREQ(
        e.what(),
        "run.yaml:1:1: nam: unknown key; did you mean 'name'?\n"
        "run.yaml:2:16: action_repeat: 0 is outside [1, 100] (control steps "
        "for which each action is held)\n"
        "run.yaml:3:23: action_repeat_reward: 'max' is not one of mean, sum "
        "(reduction of the rewards of these steps to one "
        "reward); did you mean 'mean'?\n"
        "run.yaml:4:20: pixels.renderer: 'opengl' is not one of auto, raycast, "
        "gl (raycast: ray caster on any processor; gl: MuJoCo's OpenGL, slower "
        "without a GPU; auto: gl only for scenes that the ray caster cannot "
        "draw)");
  }
}

TEST(TaskConfigTest, DefaultsAreASuiteTaskWithoutRepeat) {
  const TaskConfig task = FromYaml("{}");
  EXPECT_EQ(task.name, "cartpole-swingup");
  EXPECT_EQ(task.action_repeat, 1);
  EXPECT_EQ(task.action_repeat_reward, RewardReduction::kMean);
  EXPECT_FALSE(task.has_pixels);
}

TEST(TaskConfigTest, ReadsWhichPixelsAreWanted) {
  const TaskConfig task = FromYaml(
      "pixels: {enabled: true, height: 64, width: 48, camera: back,\n"
      "         renderer: gl, gl_platform: egl, egl_device: 1,\n"
      "         frame_stack: 4}\n");
  EXPECT_TRUE(task.has_pixels);
  EXPECT_EQ(task.pixels.frame_stack, 4);
  const CameraOptions& camera = task.pixels.camera;
  EXPECT_EQ(camera.height, 64);
  EXPECT_EQ(camera.width, 48);
  EXPECT_EQ(camera.camera, "back");
  EXPECT_EQ(camera.renderer.kind, RendererKind::kGl);
  EXPECT_EQ(camera.renderer.gl_platform, GlPlatform::kEglDevice);
  EXPECT_EQ(camera.renderer.egl_device, 1);
}

}  // namespace
}  // namespace replicant::env
