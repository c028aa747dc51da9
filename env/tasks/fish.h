#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A fish in a fluid.
//   fish-upright   uprightness of the torso
//   fish-swim      distance of the mouth to a target, and some uprightness
std::vector<TaskDefinition> FishTasks();

}  // namespace replicant::env
