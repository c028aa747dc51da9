#include "agents/task_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace replicant::agents {
namespace {

std::vector<ImageSpec> ImagesOf(const env::ObservationSpec& observations) {
  std::vector<ImageSpec> images;
  for (const env::ArraySpec& array : observations.arrays) {
    if (array.dtype != DType::kU8) continue;
    images.push_back({.name = array.name, .shape = array.shape});
  }
  return images;
}

TaskSpec SpecOf(const env::TaskConfig& config,
                const env::EnvironmentSpec& environment) {
  const env::ActionSpec& actions = environment.actions;
  for (size_t i = 0; i < actions.minimum.size(); ++i) {
    if (!actions.HasBounds(i)) {
      throw ConfigError(
          fmt::format("task.name: action {} of {} has no bounds; an agent "
                      "needs them; hint: a ctrlrange in the model, or bounds "
                      "of the environment's action space",
                      i, config.name));
    }
  }
  const bool is_mean =
      config.action_repeat_reward == env::RewardReduction::kMean;
  const auto repeat = static_cast<double>(config.action_repeat);
  const env::ObservationSpec& observations = environment.observations;
  std::vector<ImageSpec> images = ImagesOf(observations);
  Shape observation({observations.state_size()});
  if (images.size() == 1) {
    observation = images[0].shape;
    images.clear();
  } else if (!images.empty()) {
    observation = Shape({observations.pixels_size()});
  }
  return {.has_pixels = config.has_pixels,
          .observation = observation,
          .images = std::move(images),
          .state_size = config.has_pixels && config.has_state_beside_pixels
                            ? observations.state_size()
                            : 0,
          .frame_stack = config.has_pixels ? config.pixels.frame_stack : 1,
          .action_repeat = config.action_repeat,
          .largest_reward = is_mean ? 1.0 : repeat,
          .has_unit_rewards = environment.has_unit_rewards,
          .has_mean_rewards = is_mean,
          .action_minimum = actions.minimum,
          .action_maximum = actions.maximum};
}

}  // namespace

std::vector<ImageSpec> TaskSpec::AllImages() const {
  if (!has_pixels || !images.empty()) return images;
  return {{.name = "pixels", .shape = observation}};
}

int64_t TaskSpec::observation_bytes() const {
  return num_state_values() * static_cast<int64_t>(sizeof(float));
}

int64_t TaskSpec::action_bytes() const {
  return action_size() * static_cast<int64_t>(sizeof(float));
}

int64_t TaskSpec::frame_bytes() const {
  return has_pixels ? observation.num_elements() / frame_stack : 0;
}

void TaskSpec::ToTaskRange(std::span<const float> action,
                           std::span<double> out) const {
  REPLICANT_CHECK_EQ(action.size(), action_minimum.size());
  REPLICANT_CHECK_EQ(out.size(), action_minimum.size());
  for (size_t i = 0; i < action.size(); ++i) {
    const double share = (static_cast<double>(action[i]) + 1.0) / 2.0;
    // rounding may lead out of the range
    out[i] = std::clamp(
        action_minimum[i] + share * (action_maximum[i] - action_minimum[i]),
        action_minimum[i], action_maximum[i]);
  }
}

TaskSpec MakeTaskSpec(const env::TaskConfig& config,
                      const env::Environment& environment) {
  return SpecOf(config, {.observations = environment.observation_spec(),
                         .actions = environment.action_spec(),
                         .has_unit_rewards = environment.HasUnitRewards()});
}

TaskSpec MakeTaskSpec(const env::TaskConfig& config,
                      const env::TaskRegistry& tasks) {
  return SpecOf(config, env::DescribeConfiguredEnvironment(tasks, config));
}

}  // namespace replicant::agents
