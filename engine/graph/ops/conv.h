#pragma once

#include "engine/graph/graph.h"

namespace replicant::graph {

struct Conv2dOptions {
  int64_t stride = 1;
  // Zeros around the image, on each side.
  int64_t padding = 0;
};

// The two-dimensional convolution of deep learning (a cross-correlation)
//
//   y[b,i,j,o] = sum_{u,v,c} x[b, i*stride + u - padding,
//                               j*stride + v - padding, c] * w[o,c,u,v]
//
// with x taken as 0 outside.
//
// Args:
//   x  [B, H, W, C]      images, channels last
//   w  [O, C, KH, KW]    the layout of PyTorch's weights
// Returns:
//   y  [B, H', W', O]    H' = (H + 2 padding - KH) / stride + 1, rounded down
// Floating, one dtype; accumulated in at least f32.
// Throws ShapeError for other ranks, channels that differ, stride < 1,
// padding < 0 or a kernel larger than the padded image.
//
// Passes may add a bias [O] as input 2 and the attribute "activation", as for
// MatMul, and to Conv2dWeightGradient "f32_result".
Output Conv2d(Output x, Output w, const Conv2dOptions& options = {},
              CallSite site = CallSite::Here());

// The adjoints of Conv2d. Only its gradient adds them. They have no gradient:
// no model needs a second derivative through a convolution.
//
//   Conv2dInputGradient(dy, w):  dx of shape `x_shape`
//   Conv2dWeightGradient(x, dy): dw of shape `w_shape`
Output Conv2dInputGradient(Output dy, Output w, const Shape& x_shape,
                           const Conv2dOptions& options);
Output Conv2dWeightGradient(Output x, Output dy, const Shape& w_shape,
                            const Conv2dOptions& options);

// Conv2d and its weight gradient that convert pixels to images while they read
// them, so that the images need no memory:
//
//   PixelConv2d(x, w, [bias], [offsets])  = Conv2d(image, w, [bias])
//   PixelConv2dWeightGradient(x, dy, [offsets])
//                                         = Conv2dWeightGradient(image, dy)
//   image = NormalizePixels(RandomShift(x, offsets), dtype, scale, offset)
//
// x is u8[B,H,W,C], offsets i32[B,2], dtype as w and dy. In bf16 the image is
// computed in f32 and then rounded. Attributes in addition to Conv2d's:
// "scale", "offset", and "is_shifted" where there are offsets. The pass
// fuse_pixels adds them, after Gradients().
const OpDef& PixelConv2dOp();
const OpDef& PixelConv2dWeightGradientOp();

}  // namespace replicant::graph
