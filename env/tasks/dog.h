#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// An anatomically detailed dog with 38 actuators.
//   dog-stand             torso and pelvis at 0.9 of their default height;
//                         head, torso and pelvis upright, weight on the feet
//   dog-walk, -trot, -run standing times forward speed: 1, 3, 9 m/s
//   dog-fetch             standing times reaching a thrown ball and bringing it
//                         to a target
// The model's meshes make it slow to load (about half a second).
std::vector<TaskDefinition> DogTasks();

}  // namespace replicant::env
