#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "agents/agent.h"
#include "agents/d4pg/config.h"
#include "engine/graph/graph.h"

// The critic's distribution over returns, on fixed atoms.
namespace replicant::agents::d4pg {

// Smallest 1 - discount by which a reward is divided: bounds the return of
// endless rewards.
inline constexpr double kSmallestRest = 1e-6;

// Atoms z[k] = v_min + k * (v_max - v_min) / (num_atoms - 1).
struct Support {
  double v_min = 0.0;
  double v_max = 0.0;
  int64_t num_atoms = 0;
};

// Returns the support of `config`. For rewards of an agent step in
// [0, largest_reward], returns are in
//
//   [0, largest_reward / (1 - discount)]
//
// with `discount` per agent step in [0, 1). For the Control Suite,
// largest_reward is 1 if an action repeat averages rewards, and the action
// repeat if it sums them. This range is the default support. With a running
// range (agents/d4pg/return_range.h) it is [0, 1 / (1 - discount)].
//
// Throws ConfigError, with the reason, if v_min or v_max cut the range although
// the rewards are known to lie in it (`is_range_known`): returns beyond the
// outer atoms would all be projected onto these. Rewards of a user's own
// environment are not known, so that v_min < v_max is enough there.
Support MakeSupport(const DistributionConfig& config, double discount,
                    double largest_reward, bool is_range_known = true);

// Expected return per row: sum_k probabilities[b,k] * z[k].
//   probabilities [B, K], f32 or f64 -> [B]
graph::Output ExpectedValue(graph::Output probabilities, const Support& support,
                            graph::CallSite site = graph::CallSite::Here());

// Returns why a target reward[b] + discount[b] * z, z in [v_min, v_max], leaves
// that range, with the keys to change, or std::nullopt if none does. A target
// stays inside if reward[b] / (1 - discount[b]) does; this is the return if
// every step had the same reward. The misfit's size is the distance from the
// range, in lengths of the range.
std::optional<Misfit> FindClipped(const Support& support,
                                  std::span<const float> reward,
                                  std::span<const float> discount);

}  // namespace replicant::agents::d4pg
