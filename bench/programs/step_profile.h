#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/graph/passes/passes.h"
#include "engine/runtime/executor.h"
#include "tools/probe/step_graph.h"

namespace replicant::learner {

// Multiplications and additions of the matrix products and convolutions that a
// run does, in 1e9, by the node's name: equal nodes counted once.
std::map<std::string, double> GigaFlopOfNodes(const probe::StepGraph& workload,
                                              const runtime::PlanSpec& spec,
                                              const graph::TargetInfo& target);

// Prints to stderr the mean time per run of every op, and of all ops of one
// kind, largest first. Rates count the operations of the direct sums, whatever
// a kernel does.
void PrintProfile(const std::vector<runtime::KernelProfile>& profile,
                  const std::map<std::string, double>& gflop_of_nodes = {});

}  // namespace replicant::learner
