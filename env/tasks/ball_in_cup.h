#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A cup, actuated in the plane, with a ball on a string.
//   ball_in_cup-catch   1 with the ball inside the cup, else 0
std::vector<TaskDefinition> BallInCupTasks();

}  // namespace replicant::env
