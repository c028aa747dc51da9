#pragma once

#include "programs/program.h"

namespace replicant::programs {

// Makes the evaluator: it tries the policy out without noise, either beside a
// training, whose newest parameters it follows, or once with a checkpoint.
Program EvaluatorProgram();

}  // namespace replicant::programs
