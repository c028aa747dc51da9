#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A planar arm with a hand and boxes to be stacked.
//   stacker-stack_2, -stack_4   2 and 4 boxes
// Reward: nearness of any box to the target, times the hand being away from
// it.
std::vector<TaskDefinition> StackerTasks();

}  // namespace replicant::env
