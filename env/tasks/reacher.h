#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A planar arm with two links and a target in its reach.
//   reacher-easy   1 while the finger touches a target of radius 5 cm, else 0
//   reacher-hard   the same with a radius of 1.5 cm
std::vector<TaskDefinition> ReacherTasks();

}  // namespace replicant::env
