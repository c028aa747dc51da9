#pragma once

#include <span>
#include <vector>

namespace replicant::env {

// Enlarges a square image by cubic spline interpolation: the corners of both
// images coincide, and the spline goes through every given value.
//
//   image   [size, size], row-major, size >= 2
//   result  [new_size, new_size], new_size >= 2
//
// The same as scipy.ndimage.zoom with order 3 and its other defaults, to
// rounding. Beyond its edges the image counts as mirrored at its outermost
// values. O(new_size^2).
//
// Source: Unser, "Splines: A Perfect Fit for Signal and Image Processing"
// (IEEE Signal Processing Magazine, 1999), box 2.
std::vector<double> SplineZoom(std::span<const double> image, int size,
                               int new_size);

}  // namespace replicant::env
