#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// Two-link pendulum with a motor at the elbow only (Spong 1995).
//   acrobot-swingup          1 with the tip inside the target, falling off with
//                            the distance to it
//   acrobot-swingup_sparse   1 with the tip inside the target, else 0
std::vector<TaskDefinition> AcrobotTasks();

}  // namespace replicant::env
