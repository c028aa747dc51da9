#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// Masses on springs in a row with motors at the first ones: a linear system
// with quadratic cost.
//   lqr-lqr_2_1   2 bodies, 1 motor
//   lqr-lqr_6_2   6 bodies, 2 motors
// Reward 1 - (q.q + 0.1 u.u) / 2, without a lower bound. No time limit; the
// episode ends with discount 0 once the state is at rest. The springs are drawn
// once per environment. Actions are unbounded.
std::vector<TaskDefinition> LqrTasks();

}  // namespace replicant::env
