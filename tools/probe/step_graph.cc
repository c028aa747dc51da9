#include "tools/probe/step_graph.h"

namespace replicant::probe {

void StepGraph::AddGradients(const nn::TrainedVariables& trained) {
  for (size_t i = 0; i < trained.variables.size(); ++i) {
    gradients.push_back(
        {graph->variable(trained.variables[i]).name, trained.gradients[i]});
  }
}

}  // namespace replicant::probe
