#pragma once

#include <string>

#include "engine/graph/graph.h"

namespace replicant::graph {

// Prints one line per node, in the order of addition:
//
//   hidden = MatMul(observation, hidden/weight) transpose_b=true -> f32[8,256]
std::string PrintText(const Graph& graph);

// Prints the graph as Graphviz source, for `dot -Tsvg`.
std::string PrintDot(const Graph& graph);

}  // namespace replicant::graph
