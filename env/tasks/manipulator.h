#pragma once

#include <vector>

#include "env/task_registry.h"

namespace replicant::env {

// A planar arm whose hand moves an object.
//   manipulator-bring_ball, -bring_peg     to a target in the air
//   manipulator-insert_ball, -insert_peg   into a cup, into a slot
// Reward: nearness of the ball to its target; of the peg and its tip to theirs,
// or, up to a third, of the hand to the peg.
std::vector<TaskDefinition> ManipulatorTasks();

}  // namespace replicant::env
