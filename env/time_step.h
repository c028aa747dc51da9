#pragma once

#include <cstdint>

namespace replicant::env {

// Position of a time step in its episode; the numbers are dm_env's.
enum class StepType : int8_t { kFirst = 0, kMid = 1, kLast = 2 };

// The result of a step, apart from the observation in the caller's buffers.
//
// The discount is 1 within an episode and at a cut-off (time limit), and 0 at a
// termination. Reward and discount of a first step have no meaning (None in
// dm_env); they are 0 and 1.
//
// Source of the terms: dm_env (github.com/google-deepmind/dm_env).
struct TimeStep {
  StepType step_type = StepType::kFirst;
  double reward = 0.0;
  double discount = 1.0;
  // Control steps that `reward` covers; ActionRepeat makes several.
  int control_steps = 1;

  bool IsFirst() const { return step_type == StepType::kFirst; }
  bool IsLast() const { return step_type == StepType::kLast; }
};

}  // namespace replicant::env
