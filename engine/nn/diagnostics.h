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

// Returns the participation ratio of x [B, N], []: tr(C)^2 / tr(C^2), C the
// covariance of the columns over the rows. It is the number of directions in
// which the rows vary, if they vary alike in each: at least 1, at most
// min(B - 1, N); 0 if all rows are equal. No gradient flows through it.
// Source: A theory of multineuronal dimensionality, dynamics and measurement
// (Gao et al. 2017, doi:10.1101/214262), section 4.
graph::Output ParticipationRatio(
    graph::Output x, graph::CallSite site = graph::CallSite::Here());

}  // namespace replicant::nn
