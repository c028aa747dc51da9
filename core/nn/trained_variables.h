#pragma once

#include <string_view>
#include <vector>

#include "core/graph/gradients.h"
#include "core/graph/graph.h"
#include "core/nn/step_graph.h"

namespace replicant::nn {

// Trained variables of a network, and the gradients of a loss by them.
struct TrainedVariables {
  std::vector<graph::VariableId> variables;
  std::vector<graph::Output> gradients;  // one each

  // Of those for which `is_wanted(spec)`.
  template <typename IsWanted>
  TrainedVariables Only(const graph::Graph& graph,
                        const IsWanted& is_wanted) const {
    TrainedVariables some;
    for (size_t i = 0; i < variables.size(); ++i) {
      if (!is_wanted(graph.variable(variables[i]))) continue;
      some.variables.push_back(variables[i]);
      some.gradients.push_back(gradients[i]);
    }
    return some;
  }

  // With their names.
  std::vector<NamedOutput> Named(const graph::Graph& graph) const;
};

// The gradients of `loss` by all trained variables whose name begins so.
TrainedVariables GradientsOf(graph::Output loss, std::string_view prefix,
                             graph::CallSite site = graph::CallSite::Here());

}  // namespace replicant::nn
