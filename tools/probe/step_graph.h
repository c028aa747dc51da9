#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/nn/trained_variables.h"

namespace replicant::probe {

// An output of a graph under the name by which its users ask for it.
struct NamedOutput {
  std::string name;
  graph::Output output;
};

// One training step as a graph of its own. The inputs of the graph are the
// batch.
struct StepGraph {
  // Appends the gradients of `trained` to `gradients`, under the names of the
  // variables.
  void AddGradients(const nn::TrainedVariables& trained);

  std::unique_ptr<graph::Graph> graph;
  // By name of an input of class labels, which lie in [0, num_classes).
  std::map<std::string, int64_t> num_classes;
  // Updates of variables that a run must make (PlanSpec::updates).
  std::vector<graph::Output> updates;
  // Scalars that training minimises.
  std::vector<NamedOutput> losses;
  // Other results of a step ("priority").
  std::vector<NamedOutput> outputs;
  // Gradients of trained variables, by the variable's name.
  std::vector<NamedOutput> gradients;

  // Runs once before the first step of a new training. It computes first values
  // that follow from other variables (target networks). Null if there are none.
  std::unique_ptr<graph::Graph> start_graph;
  std::vector<graph::Output> start_updates;
};

}  // namespace replicant::probe
