#pragma once

#include "programs/run/invocation.h"

namespace replicant::programs {

// Runs the inference server of this host until it is told to stop. The server
// uses the learner's newest parameters and computes the policy for the actors
// of the run (actors/inference_server.h). Returns the exit code.
int ServeInference(const Invocation& invocation);

}  // namespace replicant::programs
