#pragma once

#include <memory>
#include <string>

#include "core/config/reader.h"
#include "env/environment.h"
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

  static TaskConfig Read(config::Reader& reader);
};

// The environment that `config` describes, without pixels: the task, and the
// action repeat around it. `seed` and `index` choose its random streams.
// Throws what TaskRegistry::Find() and LoadModel() throw.
std::unique_ptr<Environment> MakeConfiguredEnvironment(
    const TaskRegistry& registry, const TaskConfig& config, uint64_t seed,
    int64_t index);

}  // namespace replicant::env
