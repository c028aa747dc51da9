#pragma once

#include "engine/graph/graph.h"

namespace replicant::graph {

// Rows of a table:
//
//   y[i..., :] = table[indices[i...], :]
//
// Args:
//   table    [N, ...], any dtype
//   indices  any shape, i32 or i64; an index outside [0, N) gives zeros
// Returns:
//   y        [indices..., table's other dimensions]
// The gradient adds each dy row to its table row, in the order of the indices;
// none flows into the indices.
// Throws ShapeError for a scalar table or other indices.
Output Gather(Output table, Output indices, CallSite site = CallSite::Here());

// Gather() of a learned vector per id: table [N, D].
Output Embedding(Output table, Output ids, CallSite site = CallSite::Here());

// y[..., k] = indices[...] == k ? 1 : 0, of shape [..., depth]; i32 or i64
// indices; an index outside [0, depth) gives a row of zeros. No gradient: an
// index is not differentiable. Throws ShapeError for other indices or depth <
// 1.
Output OneHot(Output indices, int64_t depth, DType dtype,
              CallSite site = CallSite::Here());

}  // namespace replicant::graph
