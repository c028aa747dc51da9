#include "engine/kernels/cpu/winograd_operands.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "engine/kernels/cpu/primitive.h"

namespace replicant::kernels::cpu {

using dnnl::memory;

namespace {

constexpr auto kPositions = static_cast<int64_t>(kWinogradPositions);

// The layouts of oneDNN that are matrices by blocks, of rows that are a
// multiple of 16.
struct Blocks {
  int64_t columns;
  memory::format_tag tag;
};
constexpr std::array<Blocks, 4> kBlocksOfProducts = {
    {{.columns = 64, .tag = memory::format_tag::aCB16b64c},
     {.columns = 48, .tag = memory::format_tag::aCB16b48c},
     {.columns = 32, .tag = memory::format_tag::aCB16b32c},
     {.columns = 16, .tag = memory::format_tag::aCB16b16c}}};

}  // namespace

PositionMatrices::PositionMatrices(int64_t num_rows, int64_t num_columns)
    : rows(num_rows),
      columns(num_columns),
      row_size(RowSizeForProduct(num_columns)),
      stride(num_rows * row_size) {}

PositionMatrices PositionMatrices::ByBlocks(int64_t num_rows,
                                            int64_t num_columns,
                                            int64_t block) {
  PositionMatrices result(num_rows, num_columns);
  result.row_size = block;
  result.block = block;
  result.block_distance = num_rows * block;
  result.stride = num_rows * num_columns;
  return result;
}

PositionMatrices PositionMatrices::ForProductOf(const PositionMatrices& a,
                                                int64_t num_columns) {
  const PositionMatrices by_rows(a.columns, num_columns);
  const memory::desc any(by_rows.Desc().get_dims(), memory::data_type::f32,
                         memory::format_tag::any);
  const memory::desc best =
      dnnl::matmul::primitive_desc(Engine(), a.Desc(), any,
                                   PositionMatrices(a.rows, num_columns).Desc(),
                                   AttributesOf({}))
          .weights_desc();
  for (const Blocks& blocks : kBlocksOfProducts) {
    if (num_columns % blocks.columns != 0) continue;
    const PositionMatrices by_blocks =
        ByBlocks(a.columns, num_columns, blocks.columns);
    if (best == by_blocks.Desc()) return by_blocks;
  }
  return by_rows;
}

memory::desc PositionMatrices::Desc() const {
  const memory::dims dims = {kPositions, rows, columns};
  if (block_distance == kWinogradLanes) {
    return {dims, memory::data_type::f32, memory::dims{stride, row_size, 1}};
  }
  const auto* const blocks =
      std::ranges::find(kBlocksOfProducts, block, &Blocks::columns);
  REPLICANT_CHECK(
      blocks != kBlocksOfProducts.end() && rows % kWinogradLanes == 0,
      "{} rows in blocks of {} columns", rows, block);
  return {dims, memory::data_type::f32, blocks->tag};
}

memory::desc PositionMatrices::TransposedDesc() const {
  return {{kPositions, columns, rows},
          memory::data_type::f32,
          memory::dims{stride, 1, row_size}};
}

size_t PositionMatrices::size() const {
  return kWinogradPositions * static_cast<size_t>(stride);
}

Tiling::Tiling(const Shape& result, int64_t max_tiles_per_block, BlockSize size)
    : down((result[1] + kTileSide - 1) / kTileSide),
      across((result[2] + kTileSide - 1) / kTileSide),
      count(result[0] * down * across) {
  const int64_t num_blocks =
      (count + max_tiles_per_block - 1) / max_tiles_per_block;
  block = (count + num_blocks - 1) / num_blocks;
  if (size == BlockSize::kOdd) block += 1 - block % 2;
}

TransformedImages::TransformedImages(const graph::TensorType& type,
                                     const Tiling& tiling,
                                     const PositionMatrices& form,
                                     int64_t padding, int num_threads)
    : matrices(form),
      tiling_(tiling),
      padding_(padding),
      pixels_(type),
      num_threads_(num_threads) {}

TransformedImages::Pixels::Pixels TransformedImages::Find(
    const std::byte* images, int64_t tile) const {
  const Tiling::Place at = tiling_.PlaceOf(tile);
  return pixels_.Find(images, tile < tiling_.count, at.image, at.row - padding_,
                      at.column - padding_);
}

void TransformedImages::Make(const std::byte* images, int64_t first,
                             float* positions) const {
  tiling_.ForBlock(
      num_threads_, first, [&](int /*thread*/, int64_t tile, int64_t i) {
        pixels_.Fetch(Find(images, tile + kTilesAhead));
        TransformImage(Find(images, tile).data(), pixels_.dtype(),
                       static_cast<size_t>(matrices.columns),
                       positions + i * matrices.row_size, matrices.places());
      });
}

TransformedWeights::TransformedWeights(const graph::TensorType& type,
                                       const PositionMatrices& form,
                                       bool is_adjoint, int num_threads)
    : matrices(form),
      dtype_(type.dtype),
      is_adjoint_(is_adjoint),
      num_threads_(num_threads),
      rows_(static_cast<size_t>(num_threads * RowsSize())) {}

void TransformedWeights::Make(const std::byte* weights, int64_t piece,
                              int64_t num_pieces, float* positions) {
  const int64_t begin = piece * matrices.rows / num_pieces;
  const int64_t end = (piece + 1) * matrices.rows / num_pieces;
  if (dtype_ == DType::kBF16) {
    MakeRows(reinterpret_cast<const BFloat16*>(weights), begin, end, positions);
  } else {
    MakeRows(reinterpret_cast<const float*>(weights), begin, end, positions);
  }
}

template <typename T>
void TransformedWeights::MakeRows(const T* weights, int64_t first, int64_t last,
                                  float* positions) {
  const int64_t n = matrices.columns;
  ParallelFor(
      num_threads_, last - first, [&](int thread, int64_t begin, int64_t end) {
        float* rows = rows_.data() + thread * RowsSize();
        for (int64_t from = first + begin; from < first + end;
             from += kWinogradLanes) {
          const int64_t count = std::min(kWinogradLanes, first + end - from);
          if (is_adjoint_) {
            LoadTurned(weights + from * n * kTaps, count, rows);
          } else {
            LoadTransposed(weights + from * kTaps, count, rows);
          }
          for (int64_t i = 0; i < count; ++i) {
            TransformWeights(rows + i * kTaps * n, static_cast<size_t>(n),
                             positions + (from + i) * matrices.row_size,
                             matrices.places());
          }
        }
      });
}

template <typename T>
void TransformedWeights::LoadTurned(const T* weights, int64_t count,
                                    float* rows) const {
  const int64_t n = matrices.columns;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t to = 0; to < n; ++to) {
      const T* taps = weights + (i * n + to) * kTaps;
      for (int64_t k = 0; k < kTaps; ++k) {
        rows[(i * kTaps + k) * n + to] =
            static_cast<float>(taps[kTaps - 1 - k]);
      }
    }
  }
}

template <typename T>
void TransformedWeights::LoadTransposed(const T* weights, int64_t count,
                                        float* rows) const {
  const int64_t n = matrices.columns;
  for (int64_t to = 0; to < n; to += kWinogradLanes) {
    const T* taps = weights + to * matrices.rows * kTaps;
    for (int64_t i = 0; i < count * kTaps; ++i) {
      for (int64_t lane = 0; lane < kWinogradLanes; ++lane) {
        rows[i * n + to + lane] =
            static_cast<float>(taps[lane * matrices.rows * kTaps + i]);
      }
    }
  }
}

}  // namespace replicant::kernels::cpu
