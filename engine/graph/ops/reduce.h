#pragma once

#include <cstdint>
#include <vector>

#include "engine/graph/graph.h"

// Reductions over some axes. The kept elements are summed in double by the
// reference, in a fixed order by every backend.
//
//   axes       distinct, each in [-rank, rank); empty means all
//   keep_dims  whether a reduced axis stays, with size 1
//
// Every function throws ShapeError at `site` for an axis outside the rank or
// named twice, or a dtype that it does not take.
namespace replicant::graph {

struct ReduceOptions {
  std::vector<int64_t> axes;
  bool keep_dims = false;
};

// Any numeric dtype. The sum over an empty axis is 0. Passes may add the
// attribute "f32_result" to the sum or mean of bf16, which is then f32.
Output ReduceSum(Output x, const ReduceOptions& options = {},
                 CallSite site = CallSite::Here());
// Floating.
Output ReduceMean(Output x, const ReduceOptions& options = {},
                  CallSite site = CallSite::Here());
// Numeric; NaN wins. Elements that share the extremum share its gradient
// equally, as in PyTorch's amax. Throws ShapeError for an empty axis.
Output ReduceMax(Output x, const ReduceOptions& options = {},
                 CallSite site = CallSite::Here());
Output ReduceMin(Output x, const ReduceOptions& options = {},
                 CallSite site = CallSite::Here());

// Sums x over the axes along which `shape` was broadcast to x's shape: the
// adjoint of broadcasting. Returns x itself if the shapes are equal.
Output SumTo(Output x, const Shape& shape, CallSite site = CallSite::Here());

// Index of the largest element along the last axis, the first of equal ones:
// [..., K] -> i64 [...]. No gradient: an index is not differentiable.
Output ArgMax(Output x, CallSite site = CallSite::Here());

}  // namespace replicant::graph
