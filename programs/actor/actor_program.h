#pragma once

#include "programs/run/invocation.h"

namespace replicant::programs {

// Makes the actor: it acts in its environments with the newest policy that the
// learner published, and streams every step to the replay.
Program ActorProgram();

}  // namespace replicant::programs
