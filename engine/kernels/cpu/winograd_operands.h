#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "base/parallel.h"
#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"
#include "engine/graph/tensor_type.h"
#include "engine/kernels/cpu/winograd_transforms.h"

// The operands of the products of a Winograd convolution, whose result is cut
// into tiles.
namespace replicant::kernels::cpu {

inline constexpr auto kWinogradLanes = static_cast<int64_t>(kWinogradChannels);
// Pixels of a tile of the result in each direction, and of the tile of the
// image that it is made from.
inline constexpr auto kTileSide = static_cast<int64_t>(kWinogradOutput);
inline constexpr auto kImageTileSide = static_cast<int64_t>(kWinogradInput);
inline constexpr int64_t kTaps = 9;  // of a 3x3 kernel

// One f32 matrix [rows, columns] per position, one after the other.
struct PositionMatrices {
  // By rows, for products of oneDNN.
  PositionMatrices(int64_t num_rows, int64_t num_columns);
  // By blocks of columns, which are matrices by rows, for the loops of windows.
  static PositionMatrices ByBlocks(int64_t num_rows, int64_t num_columns,
                                   int64_t block);
  // The matrices by which oneDNN multiplies `a` fastest: by blocks, if it would
  // otherwise copy them to such blocks in each product, or by rows.
  static PositionMatrices ForProductOf(const PositionMatrices& a,
                                       int64_t num_columns);

  // For products of oneDNN: by rows, or in the blocks of ForProductOf().
  dnnl::memory::desc Desc() const;
  // The transposes of matrices by rows.
  dnnl::memory::desc TransposedDesc() const;
  PositionPlaces places() const {
    return {.stride = static_cast<size_t>(stride),
            .block = static_cast<size_t>(block),
            .block_distance = static_cast<size_t>(block_distance)};
  }
  size_t size() const;  // in floats
  size_t size_bytes() const { return size() * sizeof(float); }

  int64_t rows, columns;
  int64_t row_size;  // floats from one row to the next
  int64_t stride;    // floats of one matrix
  int64_t block = kWinogradLanes;
  int64_t block_distance = kWinogradLanes;
};

// The result of a convolution, [B, H, W, C], cut into tiles of 4x4 pixels. A
// block of tiles is computed at a time.
struct Tiling {
  // Positions at a distance of a power of two compete for the same cache lines;
  // blocks of odd sizes avoid it. oneDNN's fastest products allow no gaps.
  enum class BlockSize : uint8_t { kAny, kOdd };
  Tiling(const Shape& result, int64_t max_tiles_per_block, BlockSize size);

  struct Place {
    int64_t image, row, column;  // of the tile's first pixel in the result
  };
  Place PlaceOf(int64_t tile) const {
    return {.image = tile / (down * across),
            .row = tile / across % down * kTileSide,
            .column = tile % across * kTileSide};
  }

  // Calls run(thread, tile, number within the block) for the tiles of the block
  // that begins with `first`. The last block is as long as the others; its
  // surplus tiles have numbers of `count` and more.
  template <typename Run>
  void ForBlock(int num_threads, int64_t first, const Run& run) const {
    ParallelFor(num_threads, block,
                [&](int thread, int64_t begin, int64_t end) {
                  for (int64_t i = begin; i < end; ++i) {
                    run(thread, first + i, i);
                  }
                });
  }

  int64_t down, across;  // tiles of an image
  int64_t count;         // tiles of all images
  int64_t block;         // tiles per block
};

// Tiles from the one at work to the one whose pixels are fetched into the
// caches. The processor does not prefetch the rows of a tile by itself.
inline constexpr int64_t kTilesAhead = 2;

enum class Access : uint8_t { kRead, kWrite };

template <Access kAccess>
void Prefetch(const std::byte* data, int64_t num_bytes) {
  constexpr int64_t kCacheLine = 64;
  for (int64_t i = 0; i < num_bytes; i += kCacheLine) {
    __builtin_prefetch(data + i, kAccess == Access::kWrite ? 1 : 0);
  }
}

// The pixels of a tensor that one tile reads. A pixel outside the image, or of
// a surplus tile, is one of zeros.
template <int64_t kWidth>
class PixelsOfTile {
 public:
  explicit PixelsOfTile(const graph::TensorType& type)
      : dtype_(type.dtype),
        height_(type.shape[1]),
        width_(type.shape[2]),
        pixel_size_(type.shape[3] *
                    static_cast<int64_t>(DTypeSize(type.dtype))),
        zeros_(static_cast<size_t>(type.shape[3])) {}

  using Pixels = std::array<const std::byte*, kWidth * kWidth>;
  // (row, column) is the tile's first pixel, which may lie outside the image.
  // `exists` is false for a surplus tile.
  Pixels Find(const std::byte* data, bool exists, int64_t image, int64_t row,
              int64_t column) const {
    const auto* zeros = reinterpret_cast<const std::byte*>(zeros_.data());
    Pixels pixels;
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t y = row + i;
      const bool is_row = exists && y >= 0 && y < height_;
      const std::byte* line =
          is_row ? data + (image * height_ + y) * width_ * pixel_size_
                 : nullptr;
      for (int64_t j = 0; j < kWidth; ++j) {
        const int64_t x = column + j;
        pixels[static_cast<size_t>(i * kWidth + j)] =
            is_row && x >= 0 && x < width_ ? line + x * pixel_size_ : zeros;
      }
    }
    return pixels;
  }
  void Fetch(const Pixels& pixels) const {
    for (const std::byte* pixel : pixels) {
      Prefetch<Access::kRead>(pixel, pixel_size_);
    }
  }
  DType dtype() const { return dtype_; }

 private:
  DType dtype_;
  int64_t height_, width_;
  int64_t pixel_size_;  // bytes
  std::vector<float> zeros_;
};

// Transforms the image of a block of tiles.
class TransformedImages {
 public:
  // `form`: of the matrices, [tiles, C].
  TransformedImages(const graph::TensorType& type, const Tiling& tiling,
                    const PositionMatrices& form, int64_t padding,
                    int num_threads);

  // Writes the positions of the block that begins with tile `first`.
  void Make(const std::byte* images, int64_t first, float* positions) const;

  const PositionMatrices matrices;

 private:
  using Pixels = PixelsOfTile<kImageTileSide>;

  Pixels::Pixels Find(const std::byte* images, int64_t tile) const;

  Tiling tiling_;
  int64_t padding_;
  Pixels pixels_;
  int num_threads_;
};

// Transforms weights [O, C, 3, 3], f32 or bf16, to the operands of the product:
// [C, O] per position, or, for the gradient of the input, [O, C] of the kernels
// rotated by 180 degrees.
class TransformedWeights {
 public:
  TransformedWeights(const graph::TensorType& type,
                     const PositionMatrices& form, bool is_adjoint,
                     int num_threads);

  // Writes piece `piece` of `num_pieces`, which are parts of the matrices'
  // rows.
  void Make(const std::byte* weights, int64_t piece, int64_t num_pieces,
            float* positions);

  const PositionMatrices matrices;

 private:
  template <typename T>
  void MakeRows(const T* weights, int64_t first, int64_t last,
                float* positions);
  // Loads `count` rows, stored [from, to, 9], rotated by 180 degrees.
  template <typename T>
  void LoadTurned(const T* weights, int64_t count, float* rows) const;
  // Loads `count` rows, stored [to, from, 9]. Cache lines are read and written
  // whole.
  template <typename T>
  void LoadTransposed(const T* weights, int64_t count, float* rows) const;

  int64_t RowsSize() const { return kWinogradLanes * kTaps * matrices.columns; }

  DType dtype_;
  bool is_adjoint_;
  int num_threads_;
  // of each thread, [rows, 9, columns]
  std::vector<float> rows_;
};

}  // namespace replicant::kernels::cpu
