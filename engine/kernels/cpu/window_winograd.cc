#include "engine/kernels/cpu/window_winograd.h"

#include <algorithm>

#include "base/instruction_sets.h"

// Compiled once for each instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/cpu/window_winograd.cc"
// clang-format off: foreach_target.h comes before what it is to repeat
#include <hwy/foreach_target.h>
// clang-format on

#include "engine/kernels/cpu/tile_transform-inl.h"

HWY_BEFORE_NAMESPACE();
namespace replicant::kernels::cpu::HWY_NAMESPACE {

// clang-format off
// B^T; the rows of -1 and infinity, here and in G, have the sign that lets the
// transform begin with an addition
constexpr Matrix<4, 4> kCells = {{
    {1, 0, -1, 0},
    {0, 1, 1, 0},
    {0, 1, -1, 0},
    {0, 1, 0, -1}}};
// A^T
constexpr Matrix<3, 4> kProducts = {{
    {1, 1, 1, 0},
    {0, 1, -1, 0},
    {0, 1, 1, 1}}};
// G
constexpr Matrix<4, 2> kWindowWeights = {{
    {1, 0},
    {0.5f, 0.5f},
    {-0.5f, 0.5f},
    {0, -1}}};
// clang-format on
constexpr Matrix<4, 3> kTileGradients = Transposed(kProducts);
constexpr Matrix<2, 4> kWindowWeightGradient = Transposed(kWindowWeights);

constexpr auto kResults = static_cast<size_t>(WindowTiles::kResults);
constexpr size_t kSide = WindowTiles::kCells;

HWY_INLINE int64_t NumLanes() { return static_cast<int64_t>(hn::Lanes(D())); }

constexpr float SumOf(const std::array<float, kSide>& factors) {
  float sum = 0;
  for (const float factor : factors) sum += factor;
  return sum;
}

// As many words as floats fill a vector; with AVX2, where a vector of words is
// as fast, twice as many.
#if HWY_TARGET == HWY_AVX2
using Words = hn::Vec<hn::Repartition<int16_t, D>>;
#else
using Words = hn::Vec<hn::Rebind<int16_t, D>>;
#endif

// Stores scale * sums + offset.
HWY_INLINE void StoreNumbers(Words sums, V scale, V offset, float* to) {
  const hn::RebindToSigned<D> integers;
  const auto store = [&](auto words, float* place) HWY_ATTR {
    const V numbers = hn::ConvertTo(D(), hn::PromoteTo(integers, words));
    hn::StoreU(hn::MulAdd(scale, numbers, offset), D(), place);
  };
#if HWY_TARGET == HWY_AVX2
  const hn::Half<hn::DFromV<Words>> half;
  store(hn::LowerHalf(half, sums), to);
  store(hn::UpperHalf(half, sums), to + NumLanes());
#else
  store(sums, to);
#endif
}

// Positions kRow * 4 .. kRow * 4 + 3.
template <size_t kRow>
void CellsOfRow(const WindowTiles& tiles, const PixelRows& pixels,
                const TilePart& part, CellOrder order, float* cells) {
  const hn::DFromV<Words> words;
  const hn::Rebind<uint8_t, decltype(words)> bytes;
  const int64_t across = tiles.across();
  const int64_t step = tiles.windows().step;
  const int64_t row_distance = tiles.windows().step_down * pixels.row_size;
  const int64_t size = tiles.cells_size();
  const bool is_blocked = order == CellOrder::kBlocks;
  const int64_t to_next_block =
      is_blocked ? part.num_tiles * Windows::kBlock : Windows::kBlock;
  const int64_t to_next_tile = is_blocked ? Windows::kBlock : tiles.cell_size();
  const auto num_words = static_cast<int64_t>(hn::Lanes(words));
  for (int64_t i = 0; i < part.num_tiles; ++i) {
    const int64_t tile = part.first + i;
    const uint8_t* from = pixels.data + part.u * pixels.row_size +
                          tile / across * WindowTiles::kResults * row_distance +
                          tile % across * WindowTiles::kResults * step;
    float* to = cells + i * to_next_tile;
    for (int64_t k = 0; k < step; k += num_words) {
      Words sums[kSide];
      Unrolled<kSide>([&](auto j) WINOGRAD_INLINE {
        const uint8_t* cell = from + static_cast<int64_t>(j()) * step + k;
        Words column[kSide];
        Unrolled<kSide>([&](auto r) WINOGRAD_INLINE {
          column[r] = hn::PromoteTo(
              words, hn::LoadU(bytes, cell + static_cast<int64_t>(r()) *
                                                 row_distance));
        });
        sums[j] = Row<kCells, kRow>(column);
      });
      float* place =
          to + k / Windows::kBlock * to_next_block + k % Windows::kBlock;
      Unrolled<kSide>([&](auto j) WINOGRAD_INLINE {
        constexpr float kOffsets = SumOf(kCells[kRow]) * SumOf(kCells[j]);
        StoreNumbers(Row<kCells, j>(sums), hn::Set(D(), pixels.scale),
                     hn::Set(D(), kOffsets * pixels.offset),
                     place + static_cast<int64_t>(j()) * size);
      });
    }
  }
}

void Cells(const WindowTiles& tiles, const PixelRows& pixels,
           const TilePart& part, CellOrder order, float* cells) {
  Unrolled<kSide>([&](auto i) HWY_ATTR {
    if (part.row == static_cast<int64_t>(i())) {
      CellsOfRow<i()>(tiles, pixels, part, order, cells);
    }
  });
}

// Where the results of a tile are in [down, across, channels]; -1 beyond the
// results.
std::array<int64_t, kResults * kResults> PlacesOf(const WindowTiles& tiles,
                                                  int64_t tile) {
  const Windows& s = tiles.windows();
  const int64_t first_row = tile / tiles.across() * WindowTiles::kResults;
  const int64_t first_column = tile % tiles.across() * WindowTiles::kResults;
  std::array<int64_t, kResults * kResults> places{};
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t row = first_row + static_cast<int64_t>(i / kResults);
    const int64_t column = first_column + static_cast<int64_t>(i % kResults);
    places[i] = row < s.down && column < s.across
                    ? (row * s.across + column) * s.channels
                    : -1;
  }
  return places;
}

void Products(const WindowTiles& tiles, const float* products,
              const float* bias, float* y) {
  const int64_t channels = tiles.windows().channels;
  const int64_t size = tiles.products_size();
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    const auto places = PlacesOf(tiles, tile);
    const float* from = products + tile * channels;
    for (int64_t c = 0; c < channels; c += NumLanes()) {
      const V offset = hn::LoadU(D(), bias + c);
      TransformTile<kProducts>(
          [&](size_t i, size_t j) WINOGRAD_INLINE {
            const auto position = static_cast<int64_t>(i * kSide + j);
            return hn::LoadU(D(), from + position * size + c);
          },
          [&](size_t i, size_t j, V value) WINOGRAD_INLINE {
            const int64_t place = places[i * kResults + j];
            if (place < 0) return;
            hn::StoreU(hn::Add(value, offset), D(), y + place + c);
          });
    }
  }
}

void TileGradients(const WindowTiles& tiles, const float* dy, float* products) {
  const int64_t channels = tiles.windows().channels;
  const int64_t size = tiles.products_size();
  for (int64_t tile = 0; tile < tiles.count(); ++tile) {
    const auto places = PlacesOf(tiles, tile);
    float* to = products + tile * channels;
    for (int64_t c = 0; c < channels; c += NumLanes()) {
      TransformTile<kTileGradients>(
          [&](size_t i, size_t j) WINOGRAD_INLINE {
            const int64_t place = places[i * kResults + j];
            return place < 0 ? hn::Zero(D()) : hn::LoadU(D(), dy + place + c);
          },
          [&](size_t i, size_t j, V value) WINOGRAD_INLINE {
            const auto position = static_cast<int64_t>(i * kSide + j);
            hn::StoreU(value, D(), to + position * size + c);
          });
    }
  }
}

// Where weights are: of a window in [vectors, 2 heights, 2 widths, lanes], of a
// position in [height, vectors, width, lanes].
struct WeightPlaces {
  const WindowTiles& tiles;
  int64_t height = tiles.windows().step_down;  // of a cell
  int64_t width = tiles.windows().step;

  // Calls run(index in a window of its first cell, index in a position) for all
  // numbers of a cell.
  template <typename Run>
  HWY_INLINE void ForNumbers(const Run& run) const {
    const int64_t num_vectors = tiles.windows().channels / NumLanes();
    for (int64_t vector = 0; vector < num_vectors; ++vector) {
      for (int64_t u = 0; u < height; ++u) {
        for (int64_t k = 0; k < width; ++k) {
          run(((vector * 2 * height + u) * 2 * width + k) * NumLanes(),
              ((u * num_vectors + vector) * width + k) * NumLanes());
        }
      }
    }
  }
  HWY_INLINE int64_t ToCell(size_t i, size_t j) const {
    return (static_cast<int64_t>(i) * height * 2 * width +
            static_cast<int64_t>(j) * width) *
           NumLanes();
  }
  HWY_INLINE int64_t ToPosition(size_t i, size_t j) const {
    return static_cast<int64_t>(i * kSide + j) * tiles.weights_size();
  }
};

void WindowWeightsOf(const WindowTiles& tiles, const float* weights,
                     float* positions) {
  const WeightPlaces places{tiles};
  places.ForNumbers([&](int64_t of_window, int64_t of_position) HWY_ATTR {
    TransformTile<kWindowWeights>(
        [&](size_t i, size_t j) WINOGRAD_INLINE {
          return hn::LoadU(D(), weights + of_window + places.ToCell(i, j));
        },
        [&](size_t i, size_t j, V value) WINOGRAD_INLINE {
          hn::StoreU(value, D(),
                     positions + places.ToPosition(i, j) + of_position);
        });
  });
}

void WindowWeightGradient(const WindowTiles& tiles, const float* positions,
                          float* weights) {
  const WeightPlaces places{tiles};
  places.ForNumbers([&](int64_t of_window, int64_t of_position) HWY_ATTR {
    TransformTile<kWindowWeightGradient>(
        [&](size_t i, size_t j) WINOGRAD_INLINE {
          return hn::LoadU(D(),
                           positions + places.ToPosition(i, j) + of_position);
        },
        [&](size_t i, size_t j, V value) WINOGRAD_INLINE {
          hn::StoreU(value, D(), weights + of_window + places.ToCell(i, j));
        });
  });
}

}  // namespace replicant::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace replicant::kernels::cpu {

HWY_EXPORT(Cells);
HWY_EXPORT(Products);
HWY_EXPORT(TileGradients);
HWY_EXPORT(WindowWeightsOf);
HWY_EXPORT(WindowWeightGradient);

namespace {

int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Calls run(windows, cells, products, weights) for the positions of a part,
// with the place of each in the arrays of all positions.
template <typename Run>
void ForPositions(const WindowTiles& tiles, const TilePart& part,
                  const Run& run) {
  const Windows& s = tiles.windows();
  const Windows windows = tiles.AtPosition(part.num_tiles);
  for (int64_t j = 0; j < WindowTiles::kCells; ++j) {
    const int64_t position = part.row * WindowTiles::kCells + j;
    run(windows, j * tiles.cells_size(),
        position * tiles.products_size() + part.first * s.channels,
        position * tiles.weights_size() + part.u * s.step * s.channels);
  }
}

}  // namespace

bool WindowTiles::Prefer(const Windows& s) {
  if (s.height != 2 * s.step_down || s.width != 2 * s.step) return false;
  // the transform of a cell pays off if two vectors of channels multiply it
  if (s.channels == 0 || s.channels % (2 * WindowLanes()) != 0) return false;
  const int64_t results = s.down * s.across;
  const int64_t tiled = RoundUp(s.down, kResults) * RoundUp(s.across, kResults);
  return results > 0 && 4 * tiled <= 5 * results;
}

WindowTiles::WindowTiles(const Windows& windows)
    : windows_(windows),
      covered_(windows),
      cell_size_(RoundUp(windows.step, Windows::kBlock)) {
  covered_.down = RoundUp(windows.down, kResults);
  covered_.across = RoundUp(windows.across, kResults);
  constexpr int64_t kFirstLevelFloats = 5 * 1024;
  const int64_t most =
      std::max<int64_t>(1, kFirstLevelFloats / (kCells * cell_size_));
  const int64_t num_blocks = (count() + most - 1) / most;
  block_ = (count() + num_blocks - 1) / num_blocks;
}

Windows WindowTiles::AtPosition(int64_t num_tiles) const {
  return {.height = 1,
          .width = windows_.step,
          .step_down = 1,
          .step = cell_size_,
          .down = 1,
          .across = num_tiles,
          .channels = windows_.channels};
}

void TransformCells(const WindowTiles& tiles, const PixelRows& pixels,
                    const TilePart& part, CellOrder order, float* cells) {
  HWY_DYNAMIC_DISPATCH(Cells)(tiles, pixels, part, order, cells);
}

void ConvolveCells(const WindowTiles& tiles, const TilePart& part,
                   const float* cells, const float* weights, float* products) {
  ForPositions(tiles, part,
               [&](const Windows& windows, int64_t of_cells,
                   int64_t of_products, int64_t of_weights) {
                 float* y = products + of_products;
                 if (part.u == 0) {
                   std::fill_n(y, windows.across * windows.channels, 0.0f);
                 }
                 ConvolveWindows(windows, cells + of_cells,
                                 weights + of_weights, /*bias=*/nullptr, y);
               });
}

void AddCellGradient(const WindowTiles& tiles, const TilePart& part,
                     const float* cells, const float* products,
                     float* weights) {
  ForPositions(tiles, part,
               [&](const Windows& windows, int64_t of_cells,
                   int64_t of_products, int64_t of_weights) {
                 AddWindowGradient(windows, cells + of_cells,
                                   products + of_products,
                                   weights + of_weights);
               });
}

void TransformProducts(const WindowTiles& tiles, const float* products,
                       const float* bias, float* y) {
  HWY_DYNAMIC_DISPATCH(Products)(tiles, products, bias, y);
}

void TransformTileGradients(const WindowTiles& tiles, const float* dy,
                            float* products) {
  HWY_DYNAMIC_DISPATCH(TileGradients)(tiles, dy, products);
}

void TransformWindowWeights(const WindowTiles& tiles, const float* weights,
                            float* positions) {
  HWY_DYNAMIC_DISPATCH(WindowWeightsOf)(tiles, weights, positions);
}

void TransformWindowWeightGradient(const WindowTiles& tiles,
                                   const float* positions, float* weights) {
  HWY_DYNAMIC_DISPATCH(WindowWeightGradient)(tiles, positions, weights);
}

}  // namespace replicant::kernels::cpu
#endif  // HWY_ONCE
