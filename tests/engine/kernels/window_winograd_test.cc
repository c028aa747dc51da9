#include "engine/kernels/cpu/window_winograd.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"

namespace replicant::kernels::cpu {
namespace {

constexpr float kScale = 1.0f / 255;
constexpr float kOffset = -0.5f;

// Windows of 4x4 pixels with 5 channels, at a distance of 2.
Windows TwoSteps(int64_t down, int64_t across) {
  return {.height = 4,
          .width = 20,
          .step_down = 2,
          .step = 10,
          .down = down,
          .across = across,
          .channels = 2 * WindowLanes()};
}

std::vector<float> Random(int64_t size, const char* name) {
  RandomStream random(1, name);
  std::vector<float> result(static_cast<size_t>(size));
  for (float& x : result) x = static_cast<float>(random.Normal());
  return result;
}

struct Case {
  explicit Case(const Windows& windows)
      : tiles(windows),
        row_size(tiles.covered().plain_row_size() + Windows::kBlock),
        pixels(static_cast<size_t>(tiles.covered().num_rows() * row_size)) {
    RandomStream random(1, "pixels");
    for (uint8_t& x : pixels) {
      x = static_cast<uint8_t>(random.UniformInt(256));
    }
  }

  PixelRows rows() const { return {pixels.data(), row_size, kScale, kOffset}; }
  // Number k of row u of a window, and its weight in channel o.
  double Number(int64_t i, int64_t j, int64_t u, int64_t k) const {
    const Windows& s = tiles.windows();
    const int64_t place = (i * s.step_down + u) * row_size + j * s.step + k;
    return static_cast<double>(kScale) * pixels[static_cast<size_t>(place)] +
           static_cast<double>(kOffset);
  }
  int64_t num_weights() const {
    const Windows& s = tiles.windows();
    return s.channels * s.height * s.width;
  }
  size_t Weight(int64_t u, int64_t k, int64_t o) const {
    const Windows& s = tiles.windows();
    const int64_t lanes = WindowLanes();
    return static_cast<size_t>(
        ((o / lanes * s.height + u) * s.width + k) * lanes + o % lanes);
  }
  size_t Result(int64_t i, int64_t j, int64_t o) const {
    const Windows& s = tiles.windows();
    return static_cast<size_t>((i * s.across + j) * s.channels + o);
  }

  WindowTiles tiles;
  int64_t row_size;
  std::vector<uint8_t> pixels;
};

// Memory that was used before.
std::vector<float> OldProducts(const WindowTiles& tiles) {
  return std::vector<float>(
      static_cast<size_t>(WindowTiles::kPositions * tiles.products_size()),
      7.0F);
}

std::vector<float> NoCells(const WindowTiles& tiles) {
  return std::vector<float>(
      static_cast<size_t>(WindowTiles::kCells * tiles.cells_size()));
}

class WindowWinogradTest : public ::testing::TestWithParam<Windows> {};

TEST_P(WindowWinogradTest, ProductsOfTilesAreTheConvolution) {
  const Case c(GetParam());
  const WindowTiles& tiles = c.tiles;
  const Windows& s = tiles.windows();
  const std::vector<float> weights = Random(c.num_weights(), "weights");
  const std::vector<float> bias = Random(s.channels, "bias");
  std::vector<float> positions(
      static_cast<size_t>(WindowTiles::kPositions * tiles.weights_size()));
  TransformWindowWeights(tiles, weights.data(), positions.data());
  std::vector<float> products = OldProducts(tiles);
  std::vector<float> cells = NoCells(tiles);
  tiles.ForParts([&](const TilePart& part) {
    TransformCells(tiles, c.rows(), part, CellOrder::kBlocks, cells.data());
    ConvolveCells(tiles, part, cells.data(), positions.data(), products.data());
  });
  std::vector<float> y(static_cast<size_t>(s.down * s.across * s.channels));
  TransformProducts(tiles, products.data(), bias.data(), y.data());

  for (int64_t i = 0; i < s.down; ++i) {
    for (int64_t j = 0; j < s.across; ++j) {
      for (int64_t o = 0; o < s.channels; ++o) {
        double sum = static_cast<double>(bias[static_cast<size_t>(o)]);
        for (int64_t u = 0; u < s.height; ++u) {
          for (int64_t k = 0; k < s.width; ++k) {
            sum += c.Number(i, j, u, k) *
                   static_cast<double>(weights[c.Weight(u, k, o)]);
          }
        }
        // 80 products of numbers up to 1/2 with numbers around 1
        ASSERT_NEAR(y[c.Result(i, j, o)], sum, 2e-5)
            << i << ", " << j << ", " << o;
      }
    }
  }
}

TEST_P(WindowWinogradTest, GradientsOfTilesAreThatOfTheWeights) {
  const Case c(GetParam());
  const WindowTiles& tiles = c.tiles;
  const Windows& s = tiles.windows();
  const std::vector<float> dy =
      Random(s.down * s.across * s.channels, "gradient");
  std::vector<float> products = OldProducts(tiles);
  TransformTileGradients(tiles, dy.data(), products.data());
  std::vector<float> positions(
      static_cast<size_t>(WindowTiles::kPositions * tiles.weights_size()));
  std::vector<float> cells = NoCells(tiles);
  tiles.ForParts([&](const TilePart& part) {
    TransformCells(tiles, c.rows(), part, CellOrder::kPlain, cells.data());
    AddCellGradient(tiles, part, cells.data(), products.data(),
                    positions.data());
  });
  std::vector<float> dw(static_cast<size_t>(c.num_weights()));
  TransformWindowWeightGradient(tiles, positions.data(), dw.data());

  for (int64_t u = 0; u < s.height; ++u) {
    for (int64_t k = 0; k < s.width; ++k) {
      for (int64_t o = 0; o < s.channels; ++o) {
        double sum = 0;
        for (int64_t i = 0; i < s.down; ++i) {
          for (int64_t j = 0; j < s.across; ++j) {
            sum += c.Number(i, j, u, k) *
                   static_cast<double>(dy[c.Result(i, j, o)]);
          }
        }
        // up to 300 products
        ASSERT_NEAR(dw[c.Weight(u, k, o)], sum, 1e-4)
            << u << ", " << k << ", " << o;
      }
    }
  }
}

// whole tiles; tiles that reach beyond the results; several blocks of tiles
INSTANTIATE_TEST_SUITE_P(Sizes, WindowWinogradTest,
                         ::testing::Values(TwoSteps(6, 3), TwoSteps(5, 11),
                                           TwoSteps(33, 30)));

TEST(WindowTilesTest, AreForWindowsOfTwoStepsAndWholeVectors) {
  EXPECT_TRUE(WindowTiles::Prefer(TwoSteps(6, 6)));
  Windows wide = TwoSteps(6, 6);
  wide.width = 30;
  EXPECT_FALSE(WindowTiles::Prefer(wide));
  Windows high = TwoSteps(6, 6);
  high.height = 6;
  EXPECT_FALSE(WindowTiles::Prefer(high));
  Windows few = TwoSteps(6, 6);
  few.channels = WindowLanes();
  EXPECT_FALSE(WindowTiles::Prefer(few));
  // most of a tile lies beyond the results
  EXPECT_FALSE(WindowTiles::Prefer(TwoSteps(1, 1)));
}

}  // namespace
}  // namespace replicant::kernels::cpu
