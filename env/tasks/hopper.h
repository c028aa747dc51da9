#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A planar one-legged hopper (Lillicrap 2015).
//   hopper-stand   1 with the torso 0.6 m above the foot, times small control
//   hopper-hop     standing times forward speed up to 2 m/s
std::vector<TaskDefinition> HopperTasks();

}  // namespace replicant::env
