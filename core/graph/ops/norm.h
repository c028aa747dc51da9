#pragma once

#include "core/graph/graph.h"

// Normalisation. Floating, one dtype; statistics are made in at least f32.
// Every function throws ShapeError at `site` unless the vectors have the size
// of x's last dimension.
namespace replicant::graph {

// Over the last dimension (arXiv:1607.06450, eq. 4):
//
//   y = (x - mean(x)) / sqrt(var(x) + epsilon) * gamma + beta
//
// with the biased variance.
//
// Args:
//   x            [..., C]
//   gamma, beta  [C]
// The node's outputs 1 and 2 are mean and 1 / sqrt(var + epsilon), [...], which
// the gradient uses. Passes may add the attribute "activation" to output 0.
Output LayerNorm(Output x, Output gamma, Output beta, double epsilon = 1e-5,
                 CallSite site = CallSite::Here());

struct BatchNormOutputs {
  Output y;         // as x
  Output mean;      // [C]
  Output variance;  // [C], biased
};

// Over all dimensions but the last, with the statistics of this batch
// (arXiv:1502.03167, algorithm 1):
//
//   y = (x - mean) / sqrt(variance + epsilon) * gamma + beta
//
// Args:
//   x            [..., C], at least one element per channel
//   gamma, beta  [C]
// The gradient flows through y only: mean and variance are for the moving
// statistics. Passes may add the attribute "activation" to y.
BatchNormOutputs BatchNorm(Output x, Output gamma, Output beta,
                           double epsilon = 1e-5,
                           CallSite site = CallSite::Here());

// The same with given statistics, as elementwise ops; differentiable in all
// arguments.
Output BatchNormInference(Output x, Output gamma, Output beta, Output mean,
                          Output variance, double epsilon = 1e-5,
                          CallSite site = CallSite::Here());

}  // namespace replicant::graph
