#pragma once

#include "engine/graph/graph.h"

// Normalisation. Floating, one dtype; gamma and beta of bf16 images may also be
// f32. Statistics have the dtype of gamma and are computed in at least f32.
// Every function throws ShapeError at `site` unless the size of gamma and beta
// is x's last dimension.
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

struct BatchNormOptions {
  double epsilon = 1e-5;
  // Whether y = max(0, ...). The gradient needs no memory for the mask.
  bool has_relu = false;
  // Same type as x; added before the relu, as at the end of a residual block.
  // An invalid Output means none.
  Output residual = kNoGradient;
};

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
//   gamma, beta  [C], or [B, C] for x [B, ..., C]: one row per example
//                (conditional batch norm, arXiv:1610.07629, section 2.2)
// The gradient flows through y only: mean and variance are for the moving
// statistics. Passes may add the attribute "activation" to y, and the forms of
// passes/fuse_norms.cc, which store less and round as if they did not:
//
//   mask              output 3 is the mask of the relu, u8 [bytes of y / 16]:
//                     bit i of a byte tells whether element i of the 16 bytes
//                     of y in its place is positive. Rows of C elements take
//                     multiples of 16 bytes.
//   residual_epsilon  The residual is the batch norm of input 3, with gamma,
//                     beta, mean and variance, [C], as inputs 4 to 7.
//   pool_window, pool_stride, pool_padding
//                     Output 0 is MaxPool2d of y. Output 3, u8 of its shape, is
//                     the place of each maximum in its window (pool.h).
BatchNormOutputs BatchNorm(Output x, Output gamma, Output beta,
                           const BatchNormOptions& options = {},
                           CallSite site = CallSite::Here());

// Numbers of the inputs that a BatchNormGradient may have behind its first six:
// dy, x, gamma, beta, mean, variance. -1: it has none.
struct BatchNormGradientInputs {
  BatchNormGradientInputs() = default;
  explicit BatchNormGradientInputs(const Node& gradient);

  // For a relu behind a residual: as x, or the mask of BatchNorm in its place.
  int y = -1;
  int mask = -1;
  // As dy: the gradient of y is the sum of both, rounded to their dtype.
  int second_dy = -1;
  // The first of x, gamma, mean and variance of the residual's norm, with the
  // attribute "residual_epsilon". Outputs 4 to 6 are then that norm's dx,
  // dgamma and dbeta.
  int residual = -1;
};

// Mean and biased variance over all dimensions but the last: x [..., C] -> two
// outputs [C], of f32 for bf16. Passes put it in the place of a BatchNorm whose
// y other nodes compute.
const OpDef& BatchStatisticsOp();

// BatchNorm with given statistics, as elementwise ops; differentiable in all
// arguments.
Output BatchNormInference(Output x, Output gamma, Output beta, Output mean,
                          Output variance, const BatchNormOptions& options = {},
                          CallSite site = CallSite::Here());

// Batch norm in parts, for statistics over the batches of several replicas:
// each replica computes the moments of its rows, gathers and combines the
// moments of all, and normalises its rows by the result.
//
//   moments = BatchMoments(x)                        of every replica
//   y = BatchNormApply(x, gamma, beta, CombineMoments(gathered), options)
//
// All are differentiable, so that the gradient also flows back through the
// statistics of the other replicas.

// Mean and biased variance over all dimensions but the last:
// x [..., C] -> [2, C], of at least one element per channel.
Output BatchMoments(Output x, CallSite site = CallSite::Here());
// Moments of the rows of R replicas, from the moments of each replica's rows;
// each replica has equally many rows (Chan et al. 1979, eq. 2.1): [R, 2, C] ->
// [2, C], with
//
//   mean     = sum_r mean_r / R
//   variance = sum_r (variance_r + (mean_r - mean)^2) / R
Output CombineMoments(Output moments, CallSite site = CallSite::Here());
// BatchNorm with these moments [2, C]: y.
Output BatchNormApply(Output x, Output gamma, Output beta, Output moments,
                      const BatchNormOptions& options = {},
                      CallSite site = CallSite::Here());

// A weight divided by its largest singular value (arXiv:1802.05957, section 2.1
// and appendix A), as torch.nn.utils.spectral_norm with one power iteration.
// With W the weight as a matrix [O, everything else]:
//
//   v = W^T u / |W^T u|, u' = W v / |W v|    (norms below 1e-12 count as 1e-12)
//   y = weight / (u'^T W v)
//
// Args:
//   weight  [O, ...]
//   u       [O]
// No gradient flows through u' and v. One does flow through W in the divisor.
// Floating. Composed of other ops.
struct SpectralNormOutputs {
  Output y;  // as weight
  Output u;  // u', [O]
  Output v;  // the number of elements of weight / O
};
SpectralNormOutputs SpectralNorm(Output weight, Output u,
                                 CallSite site = CallSite::Here());
// Returns y for given u and v. Differentiable in all arguments.
Output SpectralNormInference(Output weight, Output u, Output v,
                             CallSite site = CallSite::Here());

}  // namespace replicant::graph
