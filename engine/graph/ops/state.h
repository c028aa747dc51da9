#pragma once

#include "engine/graph/graph.h"

namespace replicant::graph {

// Makes `value` the newest version of the variable and returns that version. A
// run executes it only if PlanSpec::updates contains the result or another node
// uses it.
// Throws ShapeError unless `value` has the variable's dtype and shape.
// No gradient: state is not differentiated through.
Output Assign(Graph& graph, VariableId variable, Output value,
              CallSite site = CallSite::Here());

}  // namespace replicant::graph
