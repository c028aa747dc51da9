#pragma once

#include <vector>

#include "engine/graph/graph.h"

namespace replicant::runtime {

// An order in which the nodes of a graph can run: inputs before users, and all
// users of a version of a variable before the update that replaces it. Among
// the nodes that could run next, the one added first runs.
//
// Throws InvalidArgument, naming variable and update, if a node needs a
// version and also the one that replaces it, or if an update of several
// variables also reads the old value of a variable that it replaces.
std::vector<graph::NodeId> ScheduleNodes(const graph::Graph& graph);

}  // namespace replicant::runtime
