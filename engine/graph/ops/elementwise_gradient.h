#pragma once

#include <vector>

#include "engine/graph/graph.h"

namespace replicant::graph {

// OpDef::gradient of the elementwise ops that have a gradient
// (graph/ops/elementwise.h). A gradient is summed back to its input's shape.
std::vector<Output> ElementwiseGradient(const GradientContext& context);

}  // namespace replicant::graph
