#pragma once

#include <cstdint>

#include "agents/d4pg/config.h"
#include "core/graph/graph.h"

// The critic's distribution over returns, on fixed atoms.
namespace replicant::agents::d4pg {

// Atoms z[k] = v_min + k * (v_max - v_min) / (num_atoms - 1).
struct Support {
  double v_min = 0.0;
  double v_max = 0.0;
  int64_t num_atoms = 0;
};

// The support that `config` asks for. The range that returns can have, for
// rewards of an agent step in [0, largest_reward], is
//
//   [0, largest_reward / (1 - discount)]
//
// with `discount` per agent step in [0, 1); largest_reward is 1 if an action
// repeat averages the rewards of the Control Suite, and the action repeat if it
// sums them. The range is the default; it is an error, a ConfigError with the
// reason, if v_min or v_max cut it: returns beyond the outer atoms would all be
// taken for these.
Support MakeSupport(const DistributionConfig& config, double discount,
                    double largest_reward);

// Expected return per row: sum_k probabilities[b,k] * z[k].
//   probabilities [B, K], f32 or f64 -> [B]
graph::Output ExpectedValue(graph::Output probabilities, const Support& support,
                            graph::CallSite site = graph::CallSite::Here());

}  // namespace replicant::agents::d4pg
