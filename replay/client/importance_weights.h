#pragma once

#include <span>

namespace replicant::replay {

// Writes the weights that correct for non-uniform sampling:
//
//   w_i = (N P_i)^-exponent / max_j (N P_j)^-exponent
//       = (min_j P_j / P_i)^exponent
//
// The maximum is over the given draws, so the largest weight is 1 and the
// number of items N cancels. A reader of several shards multiplies each
// probability by the probability that a draw goes to its shard.
// Precondition: equal lengths (checked; aborts). Throws InvalidArgument unless
// exponent is in [0, 1] and every probability in (0, 1].
// Source: Prioritized Experience Replay, sec. 3.4 (arXiv:1511.05952).
void ImportanceWeights(std::span<const double> probabilities, double exponent,
                       std::span<float> weights);

}  // namespace replicant::replay
