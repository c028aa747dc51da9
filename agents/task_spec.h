#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor/shape.h"
#include "env/environment.h"
#include "env/task_config.h"

namespace replicant::agents {

// How an environment looks to an agent and to the replay. An agent's
// observations and actions are f32, its actions in [-1, 1]; pixels are u8.
struct TaskSpec {
  bool has_pixels = false;
  // What the agent sees: [O], or [H, W, 3 * frame_stack] with pixels.
  Shape observation;
  int64_t frame_stack = 1;
  // Control steps of an agent step, of which each is a frame.
  int64_t action_repeat = 1;
  // Of one agent step; rewards of the Control Suite are in [0, 1] per control
  // step.
  double largest_reward = 1.0;
  // What brings a sum of agent steps' rewards to the Control Suite's return,
  // the sum over control steps.
  double return_scale = 1.0;
  // The task's own range of actions.
  std::vector<double> action_minimum;
  std::vector<double> action_maximum;

  int64_t action_size() const {
    return static_cast<int64_t>(action_minimum.size());
  }
  // Bytes of one step's rows in the replay: an observation without its frame,
  // an action, and the newest frame [H, W, 3].
  int64_t observation_bytes() const;
  int64_t action_bytes() const;
  int64_t frame_bytes() const;

  // From [-1, 1] to the task's range, linearly.
  void ToTaskRange(std::span<const float> action, std::span<double> out) const;
};

// Of an environment that was made of `config`. With pixels the agent sees these
// alone. Throws ConfigError if an action has no bounds (lqr).
TaskSpec MakeTaskSpec(const env::TaskConfig& config,
                      const env::Environment& environment);

}  // namespace replicant::agents
