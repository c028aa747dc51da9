#pragma once

#include <vector>

#include "core/replicator/step_plans.h"
#include "programs/program.h"

namespace replicant::programs {

// Makes `plan`: it prints what a training step of a configuration becomes on a
// device, which need not be there.
Program PlanProgram();

// The plans of a configuration's steps for one replica on the backend `cuda`.
// Throws ConfigError, and DeviceError in a build without the backend.
std::vector<replicator::StepPlan> PlansOf(const Invocation& invocation);

}  // namespace replicant::programs
