#pragma once

#include "engine/graph/graph.h"

// Pooling and upsampling of images [B, H, W, C]. Floating. Every function
// throws ShapeError at `site` for another rank, or a window that does not fit.
namespace replicant::graph {

struct PoolOptions {
  int64_t window = 2;
  int64_t stride = 2;
  // Added on each side; less than the window. Never the maximum, and not
  // counted in an average.
  int64_t padding = 0;
};

// y[b,i,j,c] = max over the window at (i*stride - padding, j*stride - padding)
//
// Returns [B, H', W', C], H' = (H + 2 padding - window) / stride + 1. The
// gradient goes to the first of equal maxima in row-major order, as in PyTorch.
// Passes may give the gradient, MaxPool2dGradient, places in windows as input 0
// in the place of x, u8, and the attribute "image", x's shape: place i * window
// + j is that of row i and column j of a window.
Output MaxPool2d(Output x, const PoolOptions& options = {},
                 CallSite site = CallSite::Here());
// The mean over the elements of the window that lie inside the image.
Output AveragePool2d(Output x, const PoolOptions& options = {},
                     CallSite site = CallSite::Here());
// The mean of each channel: [B, H, W, C] -> [B, C].
Output GlobalAveragePool(Output x, CallSite site = CallSite::Here());
// Each pixel repeated scale x scale times: [B, scale H, scale W, C]. Throws
// unless scale >= 1.
Output UpsampleNearest2d(Output x, int64_t scale,
                         CallSite site = CallSite::Here());

// The largest window whose places fit in a byte.
inline constexpr int64_t kMaxBytePlaceWindow = 16;

// The result of a pool of images [B, H, W, C].
Shape PooledShape(const Shape& image, const PoolOptions& options);

}  // namespace replicant::graph
