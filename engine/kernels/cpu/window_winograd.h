#pragma once

#include <cstdint>

#include "engine/kernels/cpu/window_loops.h"

// Winograd's F(3x3, 2x2) for windows of two steps by two steps.
//
// Cut the image into cells of one step: such a window sees 2x2 cells. A tile of
// 3x3 results, from the 4x4 cells that it sees, takes 16 products per number of
// a cell in place of 36:
//
//   y  = A^T [ (G g G^T) . (B^T d B) ] A          . number by number
//   dg = G^T [ (B^T d B) . (A dy A^T) ] G         summed over tiles
//
// d is the cells [4, 4], g the weights of a window's cells [2, 2], y the tile
// [3, 3]; values between are indexed by position p = 0 .. 15, row by row. At a
// position a tile sees one cell, so that the products are window products
// (window_loops.h). Polynomials are interpolated at 0, 1, -1 and infinity, so
// that the transform of cells adds and subtracts alone: of pixels it is exact.
//
// Source: arXiv:1509.09308.
namespace replicant::kernels::cpu {

// Some of an image's tiles, at a row of positions and of one pixel row of their
// cells.
struct TilePart {
  int64_t row;  // of positions
  int64_t u;    // pixel row
  int64_t first, num_tiles;
};

// The tiles of an image. Those at its far edges may reach beyond the results.
//
// A row of cells is as many rows of pixels; products are added up over these.
class WindowTiles {
 public:
  static constexpr int64_t kResults = 3;  // of a tile's side
  static constexpr int64_t kCells = 4;
  static constexpr int64_t kPositions = kCells * kCells;

  // Whether the method takes such windows, and is faster.
  static bool Prefer(const Windows& windows);
  // Requires Prefer(windows).
  explicit WindowTiles(const Windows& windows);

  const Windows& windows() const { return windows_; }
  // The windows of whole tiles: over the image that tiles see.
  const Windows& covered() const { return covered_; }
  // What some tiles see at one position, of one row of pixels: a row of
  // windows, one per tile.
  Windows AtPosition(int64_t num_tiles) const;

  int64_t down() const { return covered_.down / kResults; }
  int64_t across() const { return covered_.across / kResults; }
  int64_t count() const { return down() * across(); }

  // Floats of a cell's row of pixels, in whole blocks.
  int64_t cell_size() const { return cell_size_; }
  // Floats of one position: of a part's cells, of all tiles' products, and of
  // weights.
  int64_t cells_size() const { return block_ * cell_size_; }
  int64_t products_size() const { return count() * windows_.channels; }
  int64_t weights_size() const {
    return windows_.step_down * windows_.step * windows_.channels;
  }

  // Calls run(part) for the parts of an image.
  template <typename Run>
  void ForParts(const Run& run) const {
    for (int64_t row = 0; row < kCells; ++row) {
      for (int64_t u = 0; u < windows_.step_down; ++u) {
        ForTiles(count(), block_, [&](int64_t first, int64_t num_tiles) {
          run(TilePart{row, u, first, num_tiles});
        });
      }
    }
  }

 private:
  Windows windows_, covered_;
  int64_t cell_size_;
  // tiles whose cells of kCells positions stay in the first-level cache until
  // they are used
  int64_t block_;
};

// Rows of pixels, `row_size` apart, and the numbers that they stand for: scale
// * pixel + offset.
struct PixelRows {
  const uint8_t* data;
  int64_t row_size;
  float scale, offset;
};

enum class CellOrder { kBlocks, kPlain };

// B^T d B of a part: for each position of the row an image for AtPosition(), by
// blocks or of plain rows. `pixels` cover covered(); behind a row kBlock more
// are read.
void TransformCells(const WindowTiles& tiles, const PixelRows& pixels,
                    const TilePart& part, CellOrder order, float* cells);
// Multiplies a part's cells, by blocks, by the weights of all positions. Sets
// its products where part.u is 0, else adds to them.
void ConvolveCells(const WindowTiles& tiles, const TilePart& part,
                   const float* cells, const float* weights, float* products);
// Adds the gradient of the weights of all positions from a part's cells, in
// plain rows, and the gradient of the products.
void AddCellGradient(const WindowTiles& tiles, const TilePart& part,
                     const float* cells, const float* products, float* weights);
// A^T m A + bias: y [down, across, channels] from products of all positions.
void TransformProducts(const WindowTiles& tiles, const float* products,
                       const float* bias, float* y);
// A dy A^T, of all positions.
void TransformTileGradients(const WindowTiles& tiles, const float* dy,
                            float* products);
// G g G^T: weights of all positions, each [step_down, number of vectors, step,
// lanes], from the weights of windows().
void TransformWindowWeights(const WindowTiles& tiles, const float* weights,
                            float* positions);
// G^T u G.
void TransformWindowWeightGradient(const WindowTiles& tiles,
                                   const float* positions, float* weights);

}  // namespace replicant::kernels::cpu
