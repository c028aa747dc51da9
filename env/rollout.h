#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor/tensor_view.h"
#include "env/camera.h"
#include "env/control_environment.h"

namespace replicant::env {

// A recorded part of an episode, for playback.
struct RolloutInput {
  // mj_getState of mjSTATE_INTEGRATION, right after the reset.
  std::span<const double> state;
  // [steps, action size], row-major.
  std::span<const double> actions;
  // Arrays of mjModel that the reset changed.
  std::vector<NamedTensorView> model_fields;
};

// The results of T control steps. T is less than the number of actions if the
// episode ended earlier.
struct Rollout {
  std::vector<double> observation;  // [T + 1, state size]; row 0 is the start
  std::vector<double> reward;       // [T]
  std::vector<double> discount;     // [T]
  std::vector<int64_t> step_type;   // [T + 1]
  std::vector<uint8_t> pixels;      // [T + 1, H, W, 3] if there was a camera
};

// Resets `environment` to the recorded start and plays the recorded actions.
// `camera`, if not null, renders every state. Throws InvalidArgument for arrays
// that do not fit the task, and as Camera::Render() does.
Rollout PlayRollout(ControlEnvironment& environment, const RolloutInput& input,
                    Camera* camera = nullptr);

}  // namespace replicant::env
