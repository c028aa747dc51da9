#include "core/nn/trained_variables.h"

namespace replicant::nn {

std::vector<NamedOutput> TrainedVariables::Named(
    const graph::Graph& graph) const {
  std::vector<NamedOutput> named;
  for (size_t i = 0; i < variables.size(); ++i) {
    named.push_back({graph.variable(variables[i]).name, gradients[i]});
  }
  return named;
}

TrainedVariables GradientsOf(graph::Output loss, std::string_view prefix,
                             graph::CallSite site) {
  graph::Graph& graph = *loss.graph;
  TrainedVariables trained;
  std::vector<graph::Output> values;
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    const graph::VariableSpec& spec = graph.variables()[i];
    if (!spec.is_trainable || !spec.name.starts_with(prefix)) continue;
    const auto id = static_cast<graph::VariableId>(i);
    trained.variables.push_back(id);
    values.push_back(graph.Read(id, site));
  }
  trained.gradients = graph::Gradients(loss, values, site);
  return trained;
}

}  // namespace replicant::nn
