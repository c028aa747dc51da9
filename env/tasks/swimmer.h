#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A planar chain of links in a fluid (Coulom 2002).
//   swimmer-swimmer6    6 links, 5 motors
//   swimmer-swimmer15   15 links, 14 motors
// Reward: nearness of the nose to a target.
std::vector<TaskDefinition> SwimmerTasks();

}  // namespace replicant::env
