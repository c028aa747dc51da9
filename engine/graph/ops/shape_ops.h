#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/graph.h"

// Ops that move elements and compute nothing. Any dtype. Every function throws
// ShapeError at `site` if its arguments do not fit the input's shape.
namespace replicant::graph {

// The same elements in row-major order under another shape. One dimension may
// be -1; its size follows from the others.
Output Reshape(Output x, const std::vector<int64_t>& dims,
               CallSite site = CallSite::Here());
Output ReshapeTo(Output x, const Shape& shape,
                 CallSite site = CallSite::Here());

// Axis i of the result is axis permutation[i] of x.
Output Transpose(Output x, const std::vector<int64_t>& permutation,
                 CallSite site = CallSite::Here());

// Joins tensors along `axis`, -rank <= axis < rank; their other dimensions are
// equal.
Output Concat(const std::vector<Output>& xs, int64_t axis,
              CallSite site = CallSite::Here());

// x[begin[0] : begin[0] + size[0], ...]; one entry per axis.
Output Slice(Output x, const std::vector<int64_t>& begin,
             const std::vector<int64_t>& size,
             CallSite site = CallSite::Here());

// Adds before[i] elements in front of axis i and after[i] behind it. Each new
// element is `value`, rounded to x's dtype. Returns x if there is none to add.
Output Pad(Output x, const std::vector<int64_t>& before,
           const std::vector<int64_t>& after, double value = 0.0,
           CallSite site = CallSite::Here());

// x itself; no gradient flows through it.
Output StopGradient(Output x, CallSite site = CallSite::Here());

// A copy of x. It keeps the old version of a variable for use after an update.
Output Identity(Output x, CallSite site = CallSite::Here());

}  // namespace replicant::graph
