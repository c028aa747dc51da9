#pragma once

#include <cstdint>

#include "agents/agent.h"
#include "agents/d4pg/config.h"
#include "agents/d4pg/networks.h"

namespace replicant::agents::d4pg {

// Adds the policy of an actor and returns the actions
//
//   action[e] = clip(tanh(u[e]) + noise_scale[e] * N(0, 1), -1, 1)   f32 [E, A]
//
// Inputs: "observation" (agents::ObservationType() of E rows) and, with noise,
// "noise_scale" f32 [E] (0 for the mean action) and "step" i64 [], which keys
// the noise and must differ between runs.
//
// Inputs are raw: the graph normalizes them if the configuration wants it.
// Variables have the names of the learner's, with average_decay of its
// averages. Unless averages explore it declares the variables of both: actors
// of a training act by the current networks, others by the averages. Throws
// what CheckSpec() and ObservationNormalizer::Check() throw.
Output BuildPolicy(Graph& graph, const D4pgConfig& config,
                   const LearningSpec& spec, const PolicyOptions& options,
                   CallSite site = CallSite::Here());

}  // namespace replicant::agents::d4pg
