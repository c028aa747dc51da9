#pragma once

#include <vector>

#include "core/graph/graph.h"

namespace replicant::graph {

// Adds the adjoint ops of `loss` to its graph and returns d loss / d x for each
// x in `wrt`, of x's type. `wrt` are usually variables (Graph::Read), but may
// be any floating outputs; x is then taken as free, whatever it was computed
// from.
//
//   adjoint(loss) = 1
//   adjoint(x)    = sum over uses of x of the use's gradient, in the order in
//                   which the uses were added
//
// Throws InvalidArgument at `site` if
// - `loss` is not a floating scalar (shape []),
// - an x is not floating, or `loss` does not depend on it except through
//   StopGradient and the like,
// - an op on the way from an x to `loss` has no gradient: the op, its place and
//   its reason are named.
// Adjoint ops that were added by then stay in the graph, unused.
std::vector<Output> Gradients(Output loss, const std::vector<Output>& wrt,
                              CallSite site = CallSite::Here());

}  // namespace replicant::graph
