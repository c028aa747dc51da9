// Plays recorded actions in a task, or draws starts of it, and writes the
// environment's results. See docs/environments.md for the files.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/tensor/safetensors.h"
#include "env/camera.h"
#include "env/recorder.h"
#include "env/rollout.h"
#include "env/task_registry.h"
#include "env/tasks/suite.h"
#include "fleet/version.h"

namespace replicant::env {
namespace {

struct Options {
  bool list = false;
  std::string task;
  EnvironmentOptions environment;
  std::filesystem::path input;
  std::filesystem::path output;
  int64_t resets = 0;
  int64_t random_steps = 0;
  // With --input a name of a renderer asks for pixels.
  std::string render;
  std::filesystem::path video;
  CameraOptions camera;
};

// Prefix of the arrays of a file that replace arrays of the model.
constexpr std::string_view kModelPrefix = "model/";

template <typename T>
NamedTensorView Named(const char* name, const std::vector<T>& values,
                      const Shape& shape) {
  return {name, TensorView(kDTypeOf<T>, shape, values.data())};
}

void PrintTasks(const TaskRegistry& registry) {
  for (const TaskDefinition& task : registry.tasks()) {
    fmt::print("{}\n", task.name);
  }
}

// --input: plays it and writes the answers.
void Play(ControlEnvironment& environment, const Options& options) {
  const SafetensorsReader reader(options.input);
  const HostTensor state = reader.Read("state");
  const HostTensor action = reader.Read("action");
  const int64_t action_size = environment.action_spec().size();
  if (action.shape().rank() != 2 || action.shape()[1] != action_size) {
    throw InvalidArgument(fmt::format(
        "{}: action has shape {}, want [steps,{}]", options.input.string(),
        action.shape().ToString(), action_size));
  }
  RolloutInput input{.state = state.Span<double>(),
                     .actions = action.Span<double>()};
  std::vector<HostTensor> fields;
  for (const SafetensorsInfo& info : reader.tensors()) {
    const std::string& name = info.name;
    if (!name.starts_with(kModelPrefix)) continue;
    fields.push_back(reader.Read(name));
    input.model_fields.push_back(
        {name.substr(kModelPrefix.size()), fields.back().view()});
  }

  std::unique_ptr<Camera> camera;
  if (!options.render.empty()) {
    camera = std::make_unique<Camera>(environment.physics(), options.camera);
  }
  const Rollout rollout = PlayRollout(environment, input, camera.get());
  const auto steps = static_cast<int64_t>(rollout.reward.size());
  const int64_t size = environment.observation_spec().state_size();
  std::vector<NamedTensorView> tensors = {
      Named("observation", rollout.observation, Shape({steps + 1, size})),
      Named("reward", rollout.reward, Shape({steps})),
      Named("discount", rollout.discount, Shape({steps})),
      Named("step_type", rollout.step_type, Shape({steps + 1}))};
  if (camera != nullptr) {
    tensors.push_back(
        Named("pixels", rollout.pixels,
              Shape({steps + 1, camera->height(), camera->width(), 3})));
  }
  WriteSafetensors(options.output, tensors);
}

// --resets: draws starts and writes their states and observations.
void DrawStarts(ControlEnvironment& environment, const Options& options) {
  const mjModel& model = environment.physics().model();
  const int64_t state_size = mj_stateSize(&model, mjSTATE_INTEGRATION);
  const int64_t observation_size = environment.observation_spec().state_size();
  std::vector<double> states;
  std::vector<double> observations;
  std::vector<double> state(static_cast<size_t>(state_size));
  std::vector<double> observation(static_cast<size_t>(observation_size));
  for (int64_t i = 0; i < options.resets; ++i) {
    environment.Reset({.state = observation});
    mj_getState(&model, &environment.physics().data(), state.data(),
                mjSTATE_INTEGRATION);
    states.insert(states.end(), state.begin(), state.end());
    observations.insert(observations.end(), observation.begin(),
                        observation.end());
  }
  const std::vector<NamedTensorView> tensors = {
      Named("state", states, Shape({options.resets, state_size})),
      Named("observation", observations,
            Shape({options.resets, observation_size}))};
  WriteSafetensors(options.output, tensors);
}

// --random: plays uniform actions and prints each episode's return.
void PlayRandomActions(ControlEnvironment& environment,
                       const Options& options) {
  RandomStream random(options.environment.seed, "random-actions");
  const ActionSpec& spec = environment.action_spec();
  std::vector<double> action(spec.minimum.size());
  double episode_return = 0.0;
  std::optional<Recorder> recorder;
  if (!options.video.empty()) {
    recorder.emplace(&environment, std::vector{options.camera}, options.video);
  }
  const TimeStep first = environment.Reset({});
  if (recorder) recorder->Record(first);
  for (int64_t t = 0; t < options.random_steps; ++t) {
    DrawAction(spec, random, action);
    const TimeStep step = environment.Step(action, {});
    if (recorder) recorder->Record(step);
    episode_return += step.reward;
    if (step.IsLast() || t + 1 == options.random_steps) {
      const EnvironmentCounters& counters = environment.counters();
      fmt::print("episode {}: return {:.6g} after {} steps, {} divergences\n",
                 counters.episodes, episode_return, counters.steps,
                 counters.divergences);
      episode_return = 0.0;
    }
  }
  if (recorder) recorder->Finish();
}

void CheckOptions(const Options& options) {
  const int modes = (options.input.empty() ? 0 : 1) +
                    (options.resets > 0 ? 1 : 0) +
                    (options.random_steps > 0 ? 1 : 0);
  if (options.task.empty() || modes != 1) {
    throw ConfigError(
        "give --task and one of --input, --resets, --random; "
        "hint: --help");
  }
  if (options.random_steps == 0 && options.output.empty()) {
    throw ConfigError("--input and --resets need --output");
  }
  if (!options.video.empty() && options.random_steps == 0) {
    throw ConfigError("--video needs --random");
  }
  if (!options.render.empty() && options.input.empty() &&
      options.video.empty()) {
    throw ConfigError("--render needs --input or --video");
  }
}

void Run(const Options& options) {
  const TaskRegistry registry(SuiteTasks());
  if (options.list) return PrintTasks(registry);
  CheckOptions(options);
  const auto environment =
      MakeEnvironment(registry.Find(options.task), options.environment);
  if (!options.input.empty()) return Play(*environment, options);
  if (options.resets > 0) return DrawStarts(*environment, options);
  PlayRandomActions(*environment, options);
}

}  // namespace
}  // namespace replicant::env

int main(int argc, char** argv) {
  try {
    using replicant::env::Options;
    Options options;
    CLI::App app("Runs one Control Suite task.", "env_rollout");
    app.set_version_flag("--version",
                         "env_rollout " + replicant::fleet::Version());
    app.add_flag("--list", options.list, "print the names of all tasks");
    app.add_option("--task", options.task, "DOMAIN-TASK");
    app.add_option(
        "--input", options.input,
        "safetensors file with state, action and model/FIELD to play");
    app.add_option("--output", options.output, "safetensors file to write");
    app.add_option("--resets", options.resets, "draw this many starts")
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--random", options.random_steps,
                   "make this many random actions, print the returns")
        ->check(CLI::Range(1, 1'000'000'000));
    app.add_option("--render", options.render,
                   "auto, raycast or gl; with --input writes pixels");
    app.add_option("--height", options.camera.height,
                   "rows of a picture, default 84");
    app.add_option("--width", options.camera.width,
                   "columns of a picture, default 84");
    app.add_option("--camera", options.camera.camera,
                   "name or number, default 0; -1: the free camera");
    app.add_option("--video", options.video,
                   "with --random: film it, MP4 to write (needs ffmpeg)");
    app.add_option("--seed", options.environment.seed, "default 0");
    app.add_option("--mjcf", options.environment.mjcf,
                   "model file instead of the task's own");
    app.add_option("--suite_folder", options.environment.suite_folder,
                   "folder dm_control/suite with the models");
    CLI11_PARSE(app, argc, argv);
    replicant::InitLogging({.role = "env_rollout"});
    if (!options.render.empty()) {
      options.camera.renderer.kind =
          replicant::env::ParseRendererKind(options.render);
    }
    replicant::env::Run(options);
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "env_rollout: %s\n", e.what());
    return 1;
  }
}
