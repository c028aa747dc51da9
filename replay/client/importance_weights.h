#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace replicant::replay {

// The exponent of the importance weights over a run: it changes linearly from
// `exponent` to `final_exponent` over the first `steps` steps of all writers,
// and stays there.
struct ImportanceSchedule {
  double exponent = 0.0;                 // in [0, 1]; 0: all weights are 1
  std::optional<double> final_exponent;  // std::nullopt: constant `exponent`
  int64_t steps = 1;

  // `total_steps` is Batch::total_steps.
  double At(int64_t total_steps) const {
    const double share = std::min(
        1.0, static_cast<double>(total_steps) / static_cast<double>(steps));
    return exponent + share * (final_exponent.value_or(exponent) - exponent);
  }
};

// Writes the weights that correct for non-uniform sampling:
//
//   w_i = (N P_i)^-exponent / max_j (N P_j)^-exponent
//       = (min_j P_j / P_i)^exponent
//
// The maximum is over the given draws, so the largest weight is 1 and the
// number of items N cancels. With several shards, a reader multiplies each
// probability by the probability that a draw goes to the item's shard.
// Precondition: equal lengths (checked; aborts). Throws InvalidArgument unless
// exponent is in [0, 1] and every probability in (0, 1].
// Source: Prioritized Experience Replay, sec. 3.4 (arXiv:1511.05952).
void ImportanceWeights(std::span<const double> probabilities, double exponent,
                       std::span<float> weights);

}  // namespace replicant::replay
