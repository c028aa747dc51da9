#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "base/tensor/bfloat16.h"

// The inner loops of convolutions over images of few channels, one image at a
// time. A window's row is a run of KW * C adjacent floats. A loop keeps the
// results of many windows, or of many weights, in registers, and combines each
// number of the run with a vector of channels of the other image.
//
// Padding is part of the image: the caller surrounds it with zeros.
namespace replicant::kernels::cpu {

// An image and the windows over it.
struct Windows {
  int64_t height, width;  // of a window: KH and KW * C floats
  int64_t step_down;      // rows from a window to the one below
  int64_t step;           // floats from a window to the next one of its row
  int64_t down, across;   // number of windows: H' and W'
  int64_t channels;       // O

  // The rows of an image, divided into steps. The floats of the last step may
  // reach beyond the image's row.
  int64_t num_rows() const { return (down - 1) * step_down + height; }
  int64_t num_steps() const { return across - 1 + (width + step - 1) / step; }

  // A row by blocks: block b of every step, then block b + 1 of every step. All
  // windows then find the same number of their runs at a fixed distance, which
  // costs the loop no arithmetic.
  static constexpr int64_t kBlock = 16;
  int64_t blocks_per_step() const { return (step + kBlock - 1) / kBlock; }
  int64_t blocked_row_size() const {
    return blocks_per_step() * num_steps() * kBlock;
  }
  // Index of float `i` of the row.
  int64_t BlockedPlace(int64_t i) const {
    const int64_t in_step = i % step;
    return (in_step / kBlock * num_steps() + i / step) * kBlock +
           in_step % kBlock;
  }
  // A row in its original order.
  int64_t plain_row_size() const { return num_steps() * step; }

  // Calls visit(k, n) for the pieces of a run: numbers k .. k + n - 1 of it,
  // which lie side by side in one block.
  template <typename Visit>
  void ForPieces(const Visit& visit) const {
    for (int64_t begin = 0; begin < width; begin += step) {
      const int64_t end = std::min(width, begin + step);
      for (int64_t k = begin; k < end; k += kBlock) {
        visit(k, std::min(kBlock, end - k));
      }
    }
  }
  // The pairs of all pieces of a run.
  int64_t pairs_per_run() const {
    int64_t count = 0;
    ForPieces([&](int64_t /*k*/, int64_t n) { count += (n + 1) / 2; });
    return count;
  }
};

// Calls run(begin, size) for parts of [0, count) of about equal sizes, each at
// most `most`.
template <typename Run>
void ForTiles(int64_t count, int64_t most, const Run& run) {
  if (count == 0) return;
  const int64_t num_tiles = (count + most - 1) / most;
  const int64_t size = count / num_tiles;
  const int64_t num_larger = count % num_tiles;
  int64_t begin = 0;
  for (int64_t tile = 0; tile < num_tiles; ++tile) {
    const int64_t of_tile = tile < num_larger ? size + 1 : size;
    run(begin, of_tile);
    begin += of_tile;
  }
}

// ForTiles() with constant sizes: run(std::integral_constant<size_t, size>(),
// begin).
template <size_t kMost, typename Run>
void ForConstantTiles(int64_t count, const Run& run) {
  ForTiles(count, kMost, [&](int64_t begin, int64_t size) {
    const auto run_if = [&](auto constant) {
      if (size == static_cast<int64_t>(constant())) run(constant, begin);
    };
    [&]<size_t... kI>(std::index_sequence<kI...>) {
      (run_if(std::integral_constant<size_t, kI + 1>()), ...);
    }
    (std::make_index_sequence<kMost>());
  });
}

// Floats of a vector. Weights and their gradients are stored by vectors of
// channels: [number of vectors, height, width, lanes]. The last vector's
// elements beyond `channels` are read, and are undefined in a gradient.
int64_t WindowLanes();

// out[i] = scale * x[i] + offset for n pixels.
void PixelsToRow(const uint8_t* x, int64_t n, float scale, float offset,
                 float* out);
// PixelsToRow() into a row by blocks. Reads kBlock pixels more than the steps
// have.
void PixelsToBlocks(const Windows& windows, const uint8_t* x, float scale,
                    float offset, float* out);

// y[i, j, o] = bias[o] + sum_{u, k} image[i, j; u, k] * w[u, k, o]
//
// image: num_rows() rows by blocks; y: [down, across, channels]; bias: whole
// vectors of channels. Without a bias (null) adds to y.
void ConvolveWindows(const Windows& windows, const float* image, const float* w,
                     const float* bias, float* y);

// dw[u, k, o] += sum_{i, j} image[i, j; u, k] * dy[i, j, o], with plain rows.
void AddWindowGradient(const Windows& windows, const float* image,
                       const float* dy, float* dw);

// The loops in bf16 (window_loops_bf16.cc), for processors with AVX512_BF16
// only. One instruction multiplies pairs of bf16 and adds both products to an
// f32 sum. Vectors have kPairLanes channels.
struct BF16Pair {
  BFloat16 first, second;
};
inline constexpr int64_t kPairLanes = 16;

// PixelsToBlocks(), rounded to bf16.
void PixelsToBlocksOfBF16(const Windows& windows, const uint8_t* x, float scale,
                          float offset, BFloat16* out);
// out[i] = scale * (x[i], y[i]) + offset, rounded to bf16, for n pixels.
void PixelsToPairs(const uint8_t* x, const uint8_t* y, int64_t n, float scale,
                   float offset, BF16Pair* out);
// out[i] = (x[i], y[i]) for rows of n numbers. The rows of `out` are whole
// vectors of pairs; those beyond n are 0. Without y its numbers are 0.
void RowsToPairs(const BFloat16* x, const BFloat16* y, int64_t num_rows,
                 int64_t n, BF16Pair* out);

// ConvolveWindows() in bf16. A pair of weights is for two adjacent numbers of a
// piece (Windows::ForPieces).
void ConvolveWindowsOfBF16(const Windows& windows, const BFloat16* image,
                           const BF16Pair* w, const float* bias, float* y);

// AddWindowGradient() of two images at once, whose numbers are paired, as in
// dy. dy has whole vectors of channels.
void AddWindowGradientOfPairs(const Windows& windows, const BF16Pair* images,
                              const BF16Pair* dy, float* dw);

}  // namespace replicant::kernels::cpu
