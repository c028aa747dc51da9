#pragma once

#include <vector>

#include "core/kernels/backend.h"
#include "core/replicator/step_plans.h"
#include "programs/program.h"

namespace replicant::programs {

// Makes `plan`: it prints what a training step of a configuration becomes on a
// device, which need not be there.
Program PlanProgram();

// The plans of a configuration's steps for one replica on the backend `cuda`,
// or on what `make_backend` makes. Throws ConfigError, and DeviceError in a
// build without the backend.
std::vector<replicator::StepPlan> PlansOf(const Invocation& invocation);
std::vector<replicator::StepPlan> PlansOf(
    const Invocation& invocation, const kernels::BackendFactory& make_backend);

}  // namespace replicant::programs
