#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A planar finger next to a free spinner on a hinge (Tassa 2010).
//   finger-spin        1 while the spinner turns faster than 15 rad/s, else 0
//   finger-turn_easy   1 with the spinner's tip inside a target of 7 cm
//   finger-turn_hard   1 with the spinner's tip inside a target of 3 cm
std::vector<TaskDefinition> FingerTasks();

}  // namespace replicant::env
