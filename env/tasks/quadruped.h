#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A four-legged robot with activation dynamics.
//   quadruped-walk, -run   forward speed up to 0.5 and 5 m/s
//   quadruped-escape       distance from the middle of a bowl with bumps
//   quadruped-fetch        distance to a ball, and of the ball to the centre
// All are multiplied by the uprightness of the torso.
std::vector<TaskDefinition> QuadrupedTasks();

}  // namespace replicant::env
