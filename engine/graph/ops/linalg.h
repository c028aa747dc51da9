#pragma once

#include "engine/graph/graph.h"

// Linear algebra on matrices and on batches of them. Floating, one dtype;
// accumulated in at least f32.
namespace replicant::graph {

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
