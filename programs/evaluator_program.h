#pragma once

#include <string>

#include "programs/program.h"

namespace replicant::programs {

// Makes the evaluator: it tries the policy out without noise, either beside a
// training, whose newest parameters it follows, or once with a checkpoint.
Program EvaluatorProgram();

// What `evaluator --checkpoint CHECKPOINT` does; returns the exit code.
int EvaluatePolicy(const Invocation& invocation, const std::string& checkpoint);

}  // namespace replicant::programs
