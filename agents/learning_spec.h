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
  // Type of parameters and computation.
  DType dtype = DType::kF32;
};

}  // namespace replicant::agents
