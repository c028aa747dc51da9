#pragma once

#include "learner/workload_registry.h"

// DDPG (arXiv:1509.02971) from state vectors, as an agent of your own.
//
//   learner: {workload: ddpg}
//   ddpg: {hidden_size: 128, learning_rate: 1e-3, target_rate: 0.01}
replicant::learner::WorkloadDef DdpgAgent();
