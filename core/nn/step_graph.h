#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/graph/graph.h"

// What a workload is.
namespace replicant::nn {

struct NamedOutput {
  std::string name;
  graph::Output output;
};

// One training step as a graph, with what others ask of it. Its inputs are the
// batch.
struct StepGraph {
  std::unique_ptr<graph::Graph> graph;
  // What a run must do: PlanSpec::updates.
  std::vector<graph::Output> updates;
  // Scalars that are minimised.
  std::vector<NamedOutput> losses;
  // What else a step gives ("priority").
  std::vector<NamedOutput> outputs;
  // Gradients of trained variables, by the name of the variable.
  std::vector<NamedOutput> gradients;

  // A graph that is run once before the first step of a new training and makes
  // first values that follow from others (target networks); may be null.
  std::unique_ptr<graph::Graph> start_graph;
  std::vector<graph::Output> start_updates;
};

}  // namespace replicant::nn
