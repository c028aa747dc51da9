#pragma once

#include <vector>

#include "engine/graph/passes/passes.h"

namespace replicant::exporting {

// Whether a node draws random numbers: it becomes an argument of the module.
bool IsDraw(const graph::Node& node);

// Returns the program that computes `draws`, nodes of `graph` that draw: see
// StableHloModule::draws. `is_needed` by node: whether the step runs it. Throws
// InvalidArgument at the line of a draw that depends on more than counters and
// inputs.
graph::Program ExtractDraws(const graph::Graph& graph,
                            const std::vector<graph::NodeId>& draws,
                            const std::vector<bool>& is_needed);

}  // namespace replicant::exporting
