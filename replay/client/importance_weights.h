#pragma once

#include <span>

namespace replicant::replay {

// Writes the weights that make up for the uneven sampling:
//
//   w_i = (N P_i)^-exponent / max_j (N P_j)^-exponent = (min_j P_j /
//   P_i)^exponent
//
// over the given draws, so that the largest is 1 and the number of items N
// divides out. A reader of several shards passes each probability times the
// share of the draws that its shard had, the learner's replicas divide once
// more by the largest weight of all.
// Precondition: equal lengths (checked; aborts). Throws InvalidArgument unless
// exponent is in [0, 1] and every probability in (0, 1].
// Source: Prioritized Experience Replay, sec. 3.4 (arXiv:1511.05952).
void ImportanceWeights(std::span<const double> probabilities, double exponent,
                       std::span<float> weights);

}  // namespace replicant::replay
