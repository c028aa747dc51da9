#pragma once

#include "agents/task_spec.h"
#include "replay/format/chunk_format.h"

namespace replicant::programs {

// The sizes of a task's steps in the replay. Writers, readers and a replay in
// the same process must agree on them.
replay::StepShape StepShapeOf(const agents::TaskSpec& task);

}  // namespace replicant::programs
