#pragma once

#include <cstddef>

#include "base/tensor/dtype.h"

// Winograd's F(4x4, 3x3): a tile of 4x4 pixels of a 3x3 convolution with stride
// 1, from the 6x6 pixels that it sees, with 36 products per pair of channels in
// place of 144.
//
//   y  = A^T [ (G g G^T) . (B^T d B) ] A          . element by element
//   dg = G^T [ (B^T d B) . (A dy A^T) ] G         summed over tiles
//
// d is a tile of the image [6, 6], g the weights [3, 3], y a tile of the result
// [4, 4]; values between are indexed by position p = 0 .. 35, row by row.
//
// Polynomials are interpolated at 0, +-3/4, +-3/2 and infinity, which costs f32
// less accuracy than the usual 0, +-1, +-2: sums over 128 channels are off by
// about 1.1e-6 of their size, against 2.3e-6, and 0.6e-6 of the direct sum.
//
// Source: arXiv:1509.09308 (algorithm), arXiv:1803.10986 (choice of points).
namespace replicant::kernels::cpu {

inline constexpr size_t kWinogradOutput = 4;  // pixels of a side
inline constexpr size_t kWinogradInput = 6;
inline constexpr size_t kWinogradPositions = 36;
// The number of channels must be a multiple of this.
inline constexpr size_t kWinogradChannels = 16;

// Where the values between are: channel c of position p at
//
//   p * stride + c / block * block_distance + c % block
//
// A block is whole vectors.
struct PositionPlaces {
  size_t stride;
  size_t block = kWinogradChannels;
  size_t block_distance = kWinogradChannels;

  // The place of a channel at position 0.
  size_t OfChannel(size_t c) const {
    return c / block * block_distance + c % block;
  }
};

// All functions take n channels (a multiple of kWinogradChannels) of one tile.

// B^T d B. `pixels`: 36 addresses of f32 or bf16.
void TransformImage(const std::byte* const* pixels, DType dtype, size_t n,
                    float* positions, const PositionPlaces& places);
// A dy A^T. `pixels`: 16 addresses of f32 or bf16.
void TransformResultGradient(const std::byte* const* pixels, DType dtype,
                             size_t n, float* positions,
                             const PositionPlaces& places);
// A^T m A + bias. `pixels`: 16 addresses for the result. `bias` may be null.
void TransformResult(const float* positions, const PositionPlaces& places,
                     const float* bias, size_t n, float* const* pixels);
// G g G^T. Weight k of the 9 of a channel is at k * n.
void TransformWeights(const float* weights, size_t n, float* positions,
                      const PositionPlaces& places);
// G^T u G. Writes weights in the order of TransformWeights().
void TransformWeightGradient(const float* positions,
                             const PositionPlaces& places, size_t n,
                             float* weights);

}  // namespace replicant::kernels::cpu
