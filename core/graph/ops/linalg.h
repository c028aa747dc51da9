#pragma once

#include "core/graph/graph.h"
#include "core/graph/ops/matmul.h"

// Linear algebra on matrices and on batches of them. Floating, one dtype;
// accumulated in at least f32.
namespace replicant::graph {

// The matrix product of each of B pairs,
//
//   c[i,m,n] = sum_k a[i,m,k] * b[i,k,n]
//
// Args:
//   a  [B, M, K], or [B, K, M] with transpose_a
//   b  [B, K, N], or [B, N, K] with transpose_b
// Returns:
//   c  [B, M, N]
// Throws ShapeError unless both have rank 3, one B and one K.
Output BatchMatMul(Output a, Output b, const MatMulOptions& options = {},
                   CallSite site = CallSite::Here());

// The solution x of S x = b for a symmetric positive definite S, by Cholesky's
// S = L L^T (Golub and Van Loan, Matrix Computations, section 4.2):
//
//   x = S^-1 b,   S = (a + a^T) / 2
//
// Taking the symmetric part makes every element of `a` count, also in the
// gradient: db = S^-1 dx, da = -(db x^T + x db^T) / 2.
//
// Args:
//   a  [N, N] or [B, N, N]
//   b  [N, M] or [B, N, M]
// Returns:
//   x  as b
// A matrix that is not positive definite gives NaN in all of its x. The inverse
// of S is CholeskySolve(a, identity).
// Throws ShapeError for other shapes.
Output CholeskySolve(Output a, Output b, CallSite site = CallSite::Here());

}  // namespace replicant::graph
