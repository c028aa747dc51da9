#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A point mass in a plane with a motor per axis.
//   point_mass-easy   nearness to the centre, times small control
//   point_mass-hard   the same, with the motors' directions drawn anew in each
//                     episode (not seen)
std::vector<TaskDefinition> PointMassTasks();

}  // namespace replicant::env
