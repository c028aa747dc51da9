#pragma once

#include "engine/graph/graph.h"

namespace replicant::graph {

struct MatMulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// The matrix product
//
//   c[m,n] = sum_k a[m,k] * b[k,n]
//
// Args:
//   a  [M, K], or [K, M] with transpose_a
//   b  [K, N], or [N, K] with transpose_b: the form of a linear layer's weight
// Returns:
//   c  [M, N]
// Floating, one dtype; accumulated in at least f32.
// Throws ShapeError unless both are matrices of one K.
//
// Passes may add inputs and attributes, which kernels must then apply:
//   input 2                 bias [N], added to each row
//   attribute "activation"  ScalarProgram of one input, applied last
//   attribute "f32_result"  of bf16 matrices: c is f32, as it was accumulated
// and the bias of bf16 matrices may be f32.
Output MatMul(Output a, Output b, const MatMulOptions& options = {},
              CallSite site = CallSite::Here());

// The matrix product of each of B pairs,
//
//   c[i,m,n] = sum_k a[i,m,k] * b[i,k,n]
//
// Args:
//   a  [B, M, K], or [B, K, M] with transpose_a
//   b  [B, K, N], or [B, N, K] with transpose_b
// Returns:
//   c  [B, M, N]
// Floating, one dtype; accumulated in at least f32.
// Throws ShapeError unless both have rank 3, one B and one K.
Output BatchMatMul(Output a, Output b, const MatMulOptions& options = {},
                   CallSite site = CallSite::Here());

}  // namespace replicant::graph
