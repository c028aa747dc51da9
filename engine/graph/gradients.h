#pragma once

#include <vector>

#include "engine/graph/graph.h"

namespace replicant::graph {

// Adds the adjoint ops of `loss` to its graph and returns d loss / d x, of x's
// type, for each x in `wrt`. An x is usually a variable (Graph::Read), but may
// be any floating output; it then counts as free, whatever computes it.
//
//   adjoint(loss) = 1
//   adjoint(x)    = sum of the gradients of x's uses, the last use first
//
// Throws InvalidArgument at `site` if
// - `loss` is not a floating scalar (shape []),
// - an x is not floating, or `loss` does not depend on it except through
//   StopGradient and the like,
// - an op between an x and `loss` has no gradient;
//   the message names the op, its site
//   and the reason.
// After an error, the adjoint ops added so far stay in the graph, unused.
std::vector<Output> Gradients(Output loss, const std::vector<Output>& wrt,
                              CallSite site = CallSite::Here());

}  // namespace replicant::graph
