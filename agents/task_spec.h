#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "env/environment.h"
#include "env/task_config.h"

namespace replicant::agents {

// One image of an observation.
struct ImageSpec {
  // Of the environment's array: "pixels", or "pixels/CAMERA" of several.
  std::string name;
  Shape shape;  // [H, W, C], C = channels of a frame * frame_stack

  bool operator==(const ImageSpec&) const = default;
};

// An environment in the form that agent and replay use. Observations and
// actions are f32, actions in [-1, 1]; pixels are u8.
struct TaskSpec {
  bool has_pixels = false;
  // Shape of an observation: [O], or [H, W, 3 * frame_stack] with pixels. With
  // several images [P]: their bytes, one image after the other.
  Shape observation;
  // The images of an observation with several, in order; otherwise empty.
  std::vector<ImageSpec> images;
  // Numbers of the state in addition to the pixels; 0: none.
  int64_t state_size = 0;
  int64_t frame_stack = 1;
  // Control steps per agent step. Each control step counts as a frame.
  int64_t action_repeat = 1;
  // Largest reward of one agent step if those of its control steps are in [0,
  // 1], and whether they are known to be, as in the Control Suite.
  double largest_reward = 1.0;
  bool has_unit_rewards = true;
  // Whether an agent step's reward is the mean of its control steps' rewards
  // instead of their sum.
  bool has_mean_rewards = true;
  // The task's own range of actions.
  std::vector<double> action_minimum;
  std::vector<double> action_maximum;

  int64_t action_size() const {
    return static_cast<int64_t>(action_minimum.size());
  }
  DType observation_dtype() const {
    return has_pixels ? DType::kU8 : DType::kF32;
  }
  // The numbers of an observation that are no pixels.
  int64_t num_state_values() const {
    return has_pixels ? state_size : observation.num_elements();
  }
  // All images of an observation, the only one too; none without pixels.
  std::vector<ImageSpec> AllImages() const;
  // Bytes of one step's rows in the replay: an observation without its frame,
  // an action, and the newest frame [H, W, 3], of several images one after the
  // other.
  int64_t observation_bytes() const;
  int64_t action_bytes() const;
  int64_t frame_bytes() const;

  // The sum of the rewards of a step's control steps: the Control Suite's
  // return is the sum of these over an episode. The last step of an episode may
  // have fewer control steps than action_repeat.
  double SumOfRewards(const env::TimeStep& step) const {
    return has_mean_rewards ? step.reward * step.control_steps : step.reward;
  }

  // Maps an action linearly from [-1, 1] to the task's range.
  void ToTaskRange(std::span<const float> action, std::span<double> out) const;
};

// Describes `environment`, which was made from `config`. Throws ConfigError if
// an action has no bounds (lqr).
TaskSpec MakeTaskSpec(const env::TaskConfig& config,
                      const env::Environment& environment);
// Describes the environments of `config` for a process that plays none. Throws
// the same, and as env::DescribeConfiguredEnvironment().
TaskSpec MakeTaskSpec(const env::TaskConfig& config,
                      const env::TaskRegistry& tasks);

}  // namespace replicant::agents
