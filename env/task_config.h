#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/config/reader.h"
#include "env/environment.h"
#include "env/pixels.h"
#include "env/task_registry.h"
#include "env/wrappers.h"

namespace replicant::env {

// Section `task` of a run: which environment the agent acts in.
struct TaskConfig {
  std::string name = "cartpole-swingup";
  // Empty for the task's own model, and for the installed Control Suite.
  std::string mjcf;
  std::string suite_folder;
  int action_repeat = 1;
  RewardReduction action_repeat_reward = RewardReduction::kMean;
  // Whether the observation has pixels, and which.
  bool has_pixels = false;
  PixelOptions pixels;

  static TaskConfig Read(config::Reader& reader);
};

// The environments that `config` describes: the task, the action repeat around
// it, and around that the pixels, so that an observation holds the last frames
// of whole repeated steps. The model is loaded once.
//
// They are number `first_index` to `first_index + count - 1` of `seed`, which
// choose their random streams. Throws what TaskRegistry::Find(), LoadModel()
// and Pixels throw.
std::vector<std::unique_ptr<Environment>> MakeConfiguredEnvironments(
    const TaskRegistry& registry, const TaskConfig& config, uint64_t seed,
    int64_t first_index, int64_t count);
// One of them.
std::unique_ptr<Environment> MakeConfiguredEnvironment(
    const TaskRegistry& registry, const TaskConfig& config, uint64_t seed,
    int64_t index);

}  // namespace replicant::env
