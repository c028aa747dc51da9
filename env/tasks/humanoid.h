#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A simplified humanoid with 21 joints (Tassa 2012).
//   humanoid-stand            head above 1.4 m, torso upright, small control,
//                             no horizontal speed
//   humanoid-walk, -run       standing times horizontal speed of the centre of
//                             mass, up to 1 and 10 m/s
//   humanoid-run_pure_state   run, with qpos and qvel as the observation
std::vector<TaskDefinition> HumanoidTasks();

// A humanoid with 56 joints made for motion capture data of CMU; the same
// tasks.
//   humanoid_CMU-stand, -walk, -run
std::vector<TaskDefinition> HumanoidCmuTasks();

}  // namespace replicant::env
