#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A planar biped with an improved walker model.
//   walker-stand   height of the torso and its uprightness
//   walker-walk    standing times forward speed up to 1 m/s
//   walker-run     standing times forward speed up to 8 m/s
std::vector<TaskDefinition> WalkerTasks();

}  // namespace replicant::env
