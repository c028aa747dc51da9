#pragma once

#include <string>

#include "programs/run/invocation.h"

namespace replicant::programs {

// Makes the evaluator: it runs the policy without noise, either during a
// training with the newest parameters, or once with a checkpoint.
Program EvaluatorProgram();

// Runs `evaluator --checkpoint CHECKPOINT`; returns the exit code.
int EvaluatePolicy(const Invocation& invocation, const std::string& checkpoint);

}  // namespace replicant::programs
