#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "engine/graph/graph.h"

namespace replicant::nn {

using graph::CallSite;
using graph::Graph;
using graph::Output;
using graph::VariableId;

// Variables that a loss trains, and the loss's gradient with respect to each.
struct TrainedVariables {
  std::vector<VariableId> variables;
  std::vector<Output> gradients;  // gradients[i] belongs to variables[i]

  // Returns the pairs whose variable's spec satisfies `is_wanted`, in the same
  // order.
  TrainedVariables Only(
      const Graph& graph,
      const std::function<bool(const graph::VariableSpec&)>& is_wanted) const;
};

// Returns d loss / d variable for each. Throws what graph::Gradients() throws.
TrainedVariables GradientsOf(Output loss, std::vector<VariableId> variables,
                             CallSite site = CallSite::Here());
// The same for every trainable variable whose name begins with `prefix`, in the
// order of declaration.
TrainedVariables GradientsOf(Output loss, std::string_view prefix,
                             CallSite site = CallSite::Here());

// The variables whose names begin with `prefix`, in the order of declaration.
std::vector<VariableId> VariablesOf(const Graph& graph,
                                    std::string_view prefix);

// Reads the newest version of each variable.
std::vector<Output> ReadAll(Graph& graph,
                            const std::vector<VariableId>& variables,
                            CallSite site = CallSite::Here());

}  // namespace replicant::nn
