#pragma once

#include <cstddef>

#include "replay/table/sum_tree.h"

// Weights of the sum tree from priorities, compiled for several instruction
// sets and chosen at run time.
namespace replicant::replay::internal {

inline constexpr double kUnitsPerWeight = 0x1p20;

// weights[i] = priorities[i]^exponent in units of 2^-20, rounded, at least one
// unit and at most SumTree::kMaxWeight; zero for a priority of zero. A weight
// depends only on its own priority, not on its neighbours; instruction sets may
// differ by one unit where a power lies halfway between two. Precondition:
// priorities are finite and >= 0, the exponent is in [0, 1].
void WeightsOf(const double* priorities, size_t count, double exponent,
               SumTree::Weight* weights);

}  // namespace replicant::replay::internal
