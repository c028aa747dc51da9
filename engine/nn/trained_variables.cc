#include "engine/nn/trained_variables.h"

#include <utility>

#include "engine/graph/gradients.h"

namespace replicant::nn {

TrainedVariables TrainedVariables::Only(
    const Graph& graph,
    const std::function<bool(const graph::VariableSpec&)>& is_wanted) const {
  TrainedVariables wanted;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!is_wanted(graph.variable(variables[i]))) continue;
    wanted.variables.push_back(variables[i]);
    wanted.gradients.push_back(gradients[i]);
  }
  return wanted;
}

TrainedVariables GradientsOf(Output loss, std::vector<VariableId> variables,
                             CallSite site) {
  const Graph::SiteScope scope(loss, site);
  std::vector<Output> gradients =
      graph::Gradients(loss, ReadAll(*loss.graph, variables));
  return {.variables = std::move(variables), .gradients = std::move(gradients)};
}

TrainedVariables GradientsOf(Output loss, std::string_view prefix,
                             CallSite site) {
  const Graph::SiteScope scope(loss, site);
  std::vector<VariableId> variables = VariablesOf(*loss.graph, prefix);
  std::erase_if(variables, [&](VariableId variable) {
    return !loss.graph->variable(variable).is_trainable;
  });
  return GradientsOf(loss, std::move(variables));
}

std::vector<VariableId> VariablesOf(const Graph& graph,
                                    std::string_view prefix) {
  const auto& specs = graph.variables();
  std::vector<VariableId> variables;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (specs[i].name.starts_with(prefix)) {
      variables.push_back(static_cast<VariableId>(i));
    }
  }
  return variables;
}

std::vector<Output> ReadAll(Graph& graph,
                            const std::vector<VariableId>& variables,
                            CallSite site) {
  const Graph::SiteScope scope(graph, site);
  std::vector<Output> values;
  values.reserve(variables.size());
  for (const VariableId variable : variables) {
    values.push_back(graph.Read(variable));
  }
  return values;
}

}  // namespace replicant::nn
