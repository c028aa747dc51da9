#pragma once

#include <vector>

#include "engine/graph/graph.h"

// Numbers that tell whether a network still learns.
namespace replicant::nn {

// Returns the share of dormant units, []: units whose mean absolute activation
// over the rows is at most a tenth of their layer's mean. `hidden` are the
// activations of its layers, [B, N] each; none gives an invalid Output. No
// gradient flows through it.
// Source: The Dormant Neuron Phenomenon in Deep RL, definition 3.1
// (arXiv:2302.12902).
graph::Output DormantShare(const std::vector<graph::Output>& hidden,
                           graph::CallSite site = graph::CallSite::Here());

}  // namespace replicant::nn
