#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config/document.h"
#include "base/config/reader.h"
#include "env/distractions.h"
#include "env/disturbances.h"
#include "env/environment.h"
#include "env/model_randomization.h"
#include "env/pixels.h"
#include "env/task_registry.h"
#include "env/wrappers.h"

namespace replicant::env {

// Section `task` of a run: the agent's environment.
struct TaskConfig {
  std::string name = "cartpole-swingup";
  // Empty: the task's own model, the installed Control Suite.
  std::string mjcf;
  std::string suite_folder;
  // Arrays that the agent sees, in this order; empty: all.
  std::vector<std::string> observations;
  int action_repeat = 1;
  RewardReduction action_repeat_reward = RewardReduction::kMean;
  // Whether the observation has pixels, their cameras and form, and whether the
  // agent also sees the state.
  bool has_pixels = false;
  PixelOptions pixels;
  bool has_state_beside_pixels = false;
  // Numbers of the model that each episode draws.
  std::vector<FieldRandomization> randomization;
  DisturbanceConfig disturbances;
  DistractionConfig distractions;

  static TaskConfig Read(config::Reader& reader);
  // Makes the paths of the section `task` of `document` absolute, as
  // config::MakeAbsolute() does. Each program that reads the section does this
  // first.
  static void MakePathsAbsolute(config::Document& document);
};

// Makes the environments of `config`: the task with its selected arrays and
// checked numbers, ActionRepeat around it, Disturbances around both and Pixels
// around all, so that an observation holds the last frames of whole repeated
// steps. The model is loaded once.
//
// The environments have the indices `first_index` to `first_index + count - 1`;
// these and `seed` select their random streams. Throws as TaskRegistry::Find(),
// LoadModel(), Pixels and Backgrounds do, and ConfigError for pixels, an MJCF
// file, randomization, pushes or distractions with a task that is not a MuJoCo
// simulation, and for a background behind a model that only the renderer gl
// can draw.
std::vector<std::unique_ptr<Environment>> MakeConfiguredEnvironments(
    const TaskRegistry& registry, const TaskConfig& config, uint64_t seed,
    int64_t first_index, int64_t count);
// As above, with a model from LoadConfiguredModel().
std::vector<std::unique_ptr<Environment>> MakeConfiguredEnvironments(
    const TaskRegistry& registry, const TaskConfig& config,
    const mjModel& model, uint64_t seed, int64_t first_index, int64_t count);
MjModelPtr LoadConfiguredModel(const TaskRegistry& registry,
                               const TaskConfig& config);
// What an environment looks like from outside.
struct EnvironmentSpec {
  ObservationSpec observations;
  ActionSpec actions;
  // Environment::HasUnitRewards().
  bool has_unit_rewards = false;
};
// The spec of the environments of `config`. Nothing is drawn: of a MuJoCo
// simulation neither a renderer is made nor a background read. Throws as
// MakeConfiguredEnvironments() does, and AddPixels().
EnvironmentSpec DescribeConfiguredEnvironment(const TaskRegistry& registry,
                                              const TaskConfig& config);
// The environment with one index.
std::unique_ptr<Environment> MakeConfiguredEnvironment(
    const TaskRegistry& registry, const TaskConfig& config, uint64_t seed,
    int64_t index);

}  // namespace replicant::env
