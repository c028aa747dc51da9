#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A torque-limited pendulum.
//   pendulum-swingup   1 with the pole within 8 degrees of upright, else 0
std::vector<TaskDefinition> PendulumTasks();

}  // namespace replicant::env
