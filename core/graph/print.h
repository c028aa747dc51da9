#pragma once

#include <string>

#include "core/graph/graph.h"

namespace replicant::graph {

// One line a node, in the order of addition:
//
//   hidden = MatMul(observation, hidden/weight) transpose_b=true -> f32[8,256]
std::string PrintText(const Graph& graph);

// The graph in the language of Graphviz: `dot -Tsvg`.
std::string PrintDot(const Graph& graph);

}  // namespace replicant::graph
