#include "env/task_config.h"

#include <utility>

namespace replicant::env {

TaskConfig TaskConfig::Read(config::Reader& reader) {
  TaskConfig c;
  reader.Field("name", &c.name,
               "DOMAIN-TASK; env_rollout --list prints all names");
  reader.Field("mjcf", &c.mjcf,
               "MJCF file to use instead of the task's own model; empty for "
               "that");
  reader.Field("suite_folder", &c.suite_folder,
               "folder dm_control/suite with the Control Suite's models; empty "
               "for the one that setup installed");
  reader.Field("action_repeat", &c.action_repeat, {1, 100},
               "control steps that every action is held for");
  reader.Field(
      "action_repeat_reward", &c.action_repeat_reward,
      {{"mean", RewardReduction::kMean}, {"sum", RewardReduction::kSum}},
      "how the rewards of these steps become one");
  return c;
}

std::unique_ptr<Environment> MakeConfiguredEnvironment(
    const TaskRegistry& registry, const TaskConfig& config, uint64_t seed,
    int64_t index) {
  std::unique_ptr<Environment> environment = MakeEnvironment(
      registry.Find(config.name), {.seed = seed,
                                   .index = index,
                                   .mjcf = config.mjcf,
                                   .suite_folder = config.suite_folder});
  if (config.action_repeat > 1) {
    environment = std::make_unique<ActionRepeat>(std::move(environment),
                                                 config.action_repeat,
                                                 config.action_repeat_reward);
  }
  return environment;
}

}  // namespace replicant::env
