#pragma once

#include "programs/program.h"

namespace replicant::programs {

// Makes the learner: it draws batches from the replay, or images, trains, and
// publishes parameters.
Program LearnerProgram();

}  // namespace replicant::programs
