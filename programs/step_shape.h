#pragma once

#include "agents/task_spec.h"
#include "replay/format/step_group.h"

namespace replicant::programs {

// The lengths of a task's steps in the replay: writers, readers and a replay of
// the same process must agree on them.
replay::StepShape StepShapeOf(const agents::TaskSpec& task);

}  // namespace replicant::programs
