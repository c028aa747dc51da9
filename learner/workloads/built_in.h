#pragma once

#include "learner/workload_registry.h"

namespace replicant::learner {

// Returns the workloads of this project: d4pg, resnet50 and sngan.
WorkloadRegistry BuiltInWorkloads();

}  // namespace replicant::learner
