#pragma once

#include <vector>

#include "engine/kernels/backend.h"
#include "programs/run/invocation.h"
#include "replicator/inspect/plan_replicator.h"

namespace replicant::programs {

// Makes `plan`: it prints the kernels of a configuration's training step on a
// device, which need not be present.
Program PlanProgram();

// The plans of a configuration's steps for one replica on the backend `cuda`,
// or on the backend that `make_backend` makes. Throws ConfigError, and
// DeviceError in a build without the backend.
std::vector<replicator::StepPlan> PlansOf(const Invocation& invocation);
std::vector<replicator::StepPlan> PlansOf(
    const Invocation& invocation, const kernels::BackendFactory& make_backend);

}  // namespace replicant::programs
