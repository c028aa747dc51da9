#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A planar running biped (Wawrzynski 2009).
//   cheetah-run   forward speed of the centre of mass, linear up to 10 m/s
std::vector<TaskDefinition> CheetahTasks();

}  // namespace replicant::env
