#pragma once

#include "programs/run/invocation.h"

namespace replicant::programs {

// Makes the replay service: it holds the steps of actors and serves batches to
// learners. `replay --status ADDRESS` shows a running service.
Program ReplayProgram();

}  // namespace replicant::programs
