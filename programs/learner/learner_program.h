#pragma once

#include "programs/run/invocation.h"

namespace replicant::programs {

// Makes the learner: it draws batches from the replay, or images, trains, and
// publishes parameters.
Program LearnerProgram();

}  // namespace replicant::programs
