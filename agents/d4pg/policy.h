#pragma once

#include <cstdint>

#include "agents/d4pg/config.h"
#include "agents/d4pg/networks.h"

namespace replicant::agents::d4pg {

struct PolicyOptions {
  // E, environments that act together
  int64_t num_environments = 1;
  // Whether noise is added: Gaussian, of the scale that the caller gives
  // (arXiv:1804.08617, section 4).
  bool has_noise = true;
  // Global number of environment 0 (see graph/ops/random.h): two actors with
  // one seed and different numbers draw different noise.
  int64_t first_environment = 0;
};

// Adds the policy as an actor runs it and returns the actions
//
//   action[e] = clip(tanh(u[e]) + noise_scale[e] * N(0, 1), -1, 1)   f32 [E, A]
//
// Inputs: "observation" (AgentSpec::ObservationType of E rows) and, with noise,
// "noise_scale" f32 [E] (0 for the mean action) and "step" i64 [], which keys
// the noise and must differ from run to run.
//
// Variables are those of the learner's encoder and policy, by the same names.
// Throws what CheckSpec() throws.
Output BuildPolicy(Graph& graph, const NetworkConfig& config,
                   const AgentSpec& spec, const PolicyOptions& options,
                   CallSite site = CallSite::Here());

}  // namespace replicant::agents::d4pg
