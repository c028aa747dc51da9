#include "engine/graph/ops/state.h"

#include <fmt/format.h>

namespace replicant::graph {
namespace {

std::vector<TensorType> InferAssign(const InferContext& context) {
  if (context.inputs[0] != context.inputs[1]) {
    context.Fail(fmt::format("the variable is {}, the value {}",
                             context.inputs[0].ToString(),
                             context.inputs[1].ToString()));
  }
  return {context.inputs[0]};
}

}  // namespace

Output Assign(Graph& graph, VariableId variable, Output value, CallSite site) {
  static const OpDef op{
      .name = "Assign",
      .infer = &InferAssign,
      .no_gradient_reason = "state is not differentiated through",
      .is_pure = false};
  const Graph::SiteScope scope(graph, site);
  return graph.Add({.op = &op,
                    .inputs = {graph.Read(variable), value},
                    .updates = {variable},
                    .name = "Assign_" + graph.variable(variable).name});
}

}  // namespace replicant::graph
