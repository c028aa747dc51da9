#pragma once

#include <cstddef>

#include "replay/table/sum_tree.h"

// Weights of the sum tree from priorities, compiled for several instruction
// sets and chosen at run time.
namespace replicant::replay::internal {

inline constexpr double kUnitsPerWeight = 0x1p20;

// weights[i] = priorities[i]^exponent in units of 2^-20, rounded, at least one
// unit and at most SumTree::kMaxWeight; zero for a priority of zero. A weight
// depends on its priority alone, not on those beside it; instruction sets may
// differ by a unit where a power lies in the middle of two. Precondition:
// priorities are finite and >= 0, the exponent is in [0, 1].
void WeightsOf(const double* priorities, size_t count, double exponent,
               SumTree::Weight* weights);

}  // namespace replicant::replay::internal
