#pragma once

#include "programs/run/invocation.h"

namespace replicant::programs {

// Makes the program that runs actor, replay and learner in one process, in a
// fixed order and without threads between them: the same seed gives the same
// run, bit for bit. For tests, debugging and small tasks.
Program LockstepProgram();

}  // namespace replicant::programs
