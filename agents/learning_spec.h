#pragma once

#include <cstdint>

#include "agents/task_spec.h"
#include "base/tensor/dtype.h"

namespace replicant::agents {

// The learning problem of an agent.
struct LearningSpec {
  TaskSpec task;
  double discount = 0.99;  // per agent step
  int64_t n_step = 1;      // n of the transitions
  int64_t window = 0;      // H, steps of a window; 0: none
  // T, observations of a window, in [1, H]; 0 without windows
  int64_t window_observations = 0;
  // Steps that actors write for each of their steps; with hindsight more
  // than 1.
  int64_t writes_per_step = 1;
  bool has_prior = false;  // whether rows of a batch may be prior data
  // Type of parameters and computation.
  DType dtype = DType::kF32;
};

}  // namespace replicant::agents
