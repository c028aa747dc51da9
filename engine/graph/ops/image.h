#pragma once

#include "engine/graph/graph.h"

namespace replicant::graph {

// Pixels as floating numbers: scale * x + offset, x of u8. By default
// [0, 255] becomes [-0.5, 0.5], as in DrQ-v2. Throws ShapeError unless x is u8
// and dtype floating.
Output NormalizePixels(Output x, DType dtype, double scale = 1.0 / 255.0,
                       double offset = -0.5, CallSite site = CallSite::Here());

// Moves each image by its own whole number of pixels and repeats the border,
// the augmentation of DrQ (arXiv:2004.13649, section 4.1):
//
//   y[b,i,j,c] = x[b, clamp(i + offsets[b,0], 0, H-1),
//                     clamp(j + offsets[b,1], 0, W-1), c]
//
// Args:
//   x        [B, H, W, C], any dtype
//   offsets  [B, 2] i32: rows, columns
// Returns y, as x. No gradient: it is applied to frames.
// Throws ShapeError for other shapes or types.
Output RandomShift(Output x, Output offsets, CallSite site = CallSite::Here());

// The place of an image in a frame, which may hold the images of several
// cameras one after the other: `pixels` of `channels` bytes, from byte `begin`
// on.
struct FrameImage {
  int64_t begin = 0;
  int64_t pixels = 0;
  int64_t channels = 0;
};

// Stacks of frames from a table, as images whose channels are those of all
// frames in order, the oldest first:
//
//   y[i..., p, C k + c] = frames[slots[i..., k], begin + C p + c]
//
// Args:
//   frames  [N, F] u8, a frame a row
//   slots   [..., K >= 1] i32, rows of the table; one outside [0, N) gives
//   zeros image   its place in a frame; P is image.pixels, C image.channels
// Returns y, [..., P, C K] u8. No gradient: it is applied to frames.
// Throws ShapeError for other shapes or types, and for an image that leaves the
// frame.
Output GatherStacks(Output frames, Output slots, const FrameImage& image,
                    CallSite site = CallSite::Here());

}  // namespace replicant::graph
