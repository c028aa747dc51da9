#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A cart on a rail with one to three poles in a chain.
//   cartpole-balance, -balance_sparse   starts near upright
//   cartpole-swingup, -swingup_sparse   starts hanging down
//   cartpole-two_poles, -three_poles    swing-up of a chain of poles
// Dense reward: product of upright poles, small control, small angular
// velocity and a centred cart. Sparse: 1 with the cart within 0.25 of the
// centre and the cosine of every angle above 0.995, else 0.
std::vector<TaskDefinition> CartpoleTasks();

}  // namespace replicant::env
