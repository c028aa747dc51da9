#pragma once

#include "learner/workload_registry.h"

// A classifier of two interleaved spirals, as a workload of your own.
//
//   learner: {workload: spirals}
//   spirals: {hidden_size: 64, learning_rate: 3e-3}
replicant::learner::WorkloadDef SpiralsWorkload();
