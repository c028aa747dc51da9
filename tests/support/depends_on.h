#pragma once

#include <string>

#include "base/error.h"
#include "engine/graph/gradients.h"
#include "tests/support/message_of.h"

namespace replicant::testing {

// Whether a gradient flows from `scalar` to the variable.
inline bool DependsOn(graph::Output scalar, const std::string& variable) {
  graph::Graph& graph = *scalar.graph;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op != &graph::VariableOp() || node.name != variable) continue;
    const std::string message = MessageOf<InvalidArgument>([&] {
      graph::Gradients(scalar, {graph::Output{&graph, node.id}});
    });
    if (message == "no exception") return true;
  }
  return false;
}

}  // namespace replicant::testing
