#include "core/kernels/cpu/winograd.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/base/check.h"
#include "core/kernels/cpu/pack_memory.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/primitive.h"
#include "core/kernels/cpu/stored.h"
#include "core/kernels/cpu/tile_program.h"
#include "core/kernels/cpu/winograd_transforms.h"

// How a 3x3 convolution is computed.
//
// The result is cut into tiles of 4x4 pixels (Tiling). Each tile of 6x6 input
// pixels and each 3x3 kernel is transformed to 36 positions (TransformedImages,
// TransformedWeights). At each position the convolution is one matrix product,
// tiles x input channels by input channels x output channels, and oneDNN
// computes the 36 products as one batch (PositionMatrices). The inverse
// transform turns the products into pixels. Tiles go through these steps a
// block at a time, so that a block stays in the second-level cache.
//
// The gradient of the input is the same convolution with the kernel turned by
// half a turn. The gradient of the weights multiplies transformed images by
// transformed result gradients, adds over the blocks, and transforms the sum
// back once.
namespace replicant::kernels::cpu {
namespace {

using dnnl::memory;
using std::size_t;

constexpr auto kSide = static_cast<int64_t>(kWinogradOutput);
constexpr auto kSeen = static_cast<int64_t>(kWinogradInput);
constexpr auto kPositions = static_cast<int64_t>(kWinogradPositions);
constexpr auto kLanes = static_cast<int64_t>(kWinogradChannels);

// One matrix [rows, columns] per position, one after the other.
struct PositionMatrices {
  PositionMatrices(int64_t num_rows, int64_t num_columns)
      : rows(num_rows), columns(num_columns), stride(num_rows * num_columns) {}

  memory::desc Desc(bool is_transposed = false) const {
    if (is_transposed) {
      return {{kPositions, columns, rows},
              memory::data_type::f32,
              memory::dims{stride, 1, columns}};
    }
    return {{kPositions, rows, columns},
            memory::data_type::f32,
            memory::dims{stride, columns, 1}};
  }
  size_t size_bytes() const {
    return static_cast<size_t>(kPositions * stride) * sizeof(float);
  }

  int64_t rows, columns, stride;
};

// The result of a convolution, [B, H, W, C], cut into tiles of 4x4 pixels,
// which are worked on some at a time.
struct Tiling {
  Tiling(const Shape& result, int64_t most_tiles)
      : down((result[1] + kSide - 1) / kSide),
        across((result[2] + kSide - 1) / kSide),
        count(result[0] * down * across) {
    const int64_t num_blocks = (count + most_tiles - 1) / most_tiles;
    block = (count + num_blocks - 1) / num_blocks;
    // positions at a distance of a power of two would want the same lines of
    // the caches; oneDNN's fastest products take no other gaps
    block += 1 - block % 2;
  }

  struct Place {
    int64_t image, row, column;  // of the result's first pixel
  };
  Place PlaceOf(int64_t tile) const {
    return {.image = tile / (down * across),
            .row = tile / across % down * kSide,
            .column = tile % across * kSide};
  }

  // Calls run(thread, tile, number within the block) for the tiles of the block
  // that begins with `first`; past the last one for as many as the block lacks.
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
  int64_t count;         // of all images
  int64_t block;         // tiles at a time, about as many in each
};

// The pixels of a tensor that a tile reads; outside of the image, and past the
// last tile, a pixel of zeros.
template <int64_t kWidth>
class PixelsOfTile {
 public:
  explicit PixelsOfTile(const graph::TensorType& type)
      : dtype_(type.dtype),
        shape_(type.shape),
        zeros_(static_cast<size_t>(shape_[3])) {}

  using Pixels = std::array<const std::byte*, kWidth * kWidth>;
  // The first pixel at (row, column) of the image, which may be outside.
  Pixels Find(const std::byte* data, bool exists, int64_t image, int64_t row,
              int64_t column) const {
    const auto pixel_size = shape_[3] * static_cast<int64_t>(DTypeSize(dtype_));
    Pixels pixels;
    for (int64_t i = 0; i < kWidth; ++i) {
      const int64_t y = row + i;
      const bool is_row = exists && y >= 0 && y < shape_[1];
      const std::byte* line =
          is_row ? data + (image * shape_[1] + y) * shape_[2] * pixel_size
                 : nullptr;
      for (int64_t j = 0; j < kWidth; ++j) {
        const int64_t x = column + j;
        pixels[static_cast<size_t>(i * kWidth + j)] =
            is_row && x >= 0 && x < shape_[2]
                ? line + x * pixel_size
                : reinterpret_cast<const std::byte*>(zeros_.data());
      }
    }
    return pixels;
  }
  DType dtype() const { return dtype_; }
  int64_t channels() const { return shape_[3]; }

 private:
  DType dtype_;
  Shape shape_;
  std::vector<float> zeros_;
};

// The transformed image of a block of tiles.
class TransformedImages {
 public:
  TransformedImages(const graph::TensorType& type, const Tiling& tiling,
                    int64_t padding, int num_threads)
      : matrices(tiling.block, type.shape[3]),
        tiling_(tiling),
        padding_(padding),
        pixels_(type),
        num_threads_(num_threads) {}

  void Make(const std::byte* images, int64_t first, float* positions) const {
    tiling_.ForBlock(
        num_threads_, first, [&](int /*thread*/, int64_t tile, int64_t i) {
          const Tiling::Place at = tiling_.PlaceOf(tile);
          const auto pixels =
              pixels_.Find(images, tile < tiling_.count, at.image,
                           at.row - padding_, at.column - padding_);
          TransformImage(pixels.data(), pixels_.dtype(),
                         static_cast<size_t>(matrices.columns),
                         positions + i * matrices.columns,
                         static_cast<size_t>(matrices.stride));
        });
  }

  PositionMatrices matrices;  // [tiles, C]

 private:
  Tiling tiling_;
  int64_t padding_;
  PixelsOfTile<kSeen> pixels_;
  int num_threads_;
};

// Weights [O, C, 3, 3] as the product takes them, [from, to] per position: for
// the input's gradient from O to C, turned by half a turn.
class TransformedWeights {
 public:
  TransformedWeights(const graph::TensorType& type, bool is_adjoint,
                     int num_threads)
      : matrices(type.shape[is_adjoint ? 0 : 1],
                 type.shape[is_adjoint ? 1 : 0]),
        dtype_(type.dtype),
        is_adjoint_(is_adjoint),
        num_threads_(num_threads),
        rows_(static_cast<size_t>(num_threads * RowsSize())) {}

  // One of `num_pieces` pieces of the channels that are read.
  void Make(const std::byte* weights, int64_t piece, int64_t num_pieces,
            float* positions) {
    const int64_t begin = piece * matrices.rows / num_pieces;
    const int64_t end = (piece + 1) * matrices.rows / num_pieces;
    if (dtype_ == DType::kBF16) {
      Make(reinterpret_cast<const BFloat16*>(weights), begin, end, positions);
    } else {
      Make(reinterpret_cast<const float*>(weights), begin, end, positions);
    }
  }

  PositionMatrices matrices;

 private:
  static constexpr int64_t kTaps = 9;

  template <typename T>
  void Make(const T* weights, int64_t first, int64_t last, float* positions) {
    const auto n = matrices.columns;
    ParallelFor(num_threads_, last - first,
                [&](int thread, int64_t begin, int64_t end) {
                  float* rows = rows_.data() + thread * RowsSize();
                  for (int64_t from = first + begin; from < first + end;
                       from += kLanes) {
                    const int64_t count = std::min(kLanes, first + end - from);
                    if (is_adjoint_) {
                      LoadTurned(weights + from * n * kTaps, count, rows);
                    } else {
                      LoadTransposed(weights + from * kTaps, count, rows);
                    }
                    for (int64_t i = 0; i < count; ++i) {
                      TransformWeights(rows + i * kTaps * n,
                                       static_cast<size_t>(n),
                                       positions + (from + i) * n,
                                       static_cast<size_t>(matrices.stride));
                    }
                  }
                });
  }

  // Weights of some channels, [from, to, 9], turned by half a turn.
  template <typename T>
  void LoadTurned(const T* weights, int64_t count, float* rows) const {
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
  // [to, from, 9]; lines of memory are read and written whole.
  template <typename T>
  void LoadTransposed(const T* weights, int64_t count, float* rows) const {
    const int64_t n = matrices.columns;
    for (int64_t to = 0; to < n; to += kLanes) {
      const T* taps = weights + to * matrices.rows * kTaps;
      for (int64_t i = 0; i < count * kTaps; ++i) {
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          rows[i * n + to + lane] =
              static_cast<float>(taps[lane * matrices.rows * kTaps + i]);
        }
      }
    }
  }

  int64_t RowsSize() const { return kLanes * kTaps * matrices.columns; }

  DType dtype_;
  bool is_adjoint_;
  int num_threads_;
  // of each thread, [some from, 9, to]
  std::vector<float> rows_;
};

// Conv2d, and its adjoint, which is one as well: the convolution of dy with the
// weights turned by half a turn, with 2 - padding zeros around it.
class WinogradConvKernel : public Kernel {
 public:
  WinogradConvKernel(const CpuRequest& request, bool is_adjoint)
      : num_threads_(request.num_threads),
        output_(request.output()),
        tiling_(output_.shape, kTilesPerThread * num_threads_),
        images_(request.input(0), tiling_,
                is_adjoint ? 2 - request.node.attributes.Int("padding")
                           : request.node.attributes.Int("padding"),
                num_threads_),
        weights_(request.input(1), is_adjoint, num_threads_),
        packed_(weights_.matrices.size_bytes()),
        result_(tiling_.block, output_.shape[3]),
        images_at_(scratch_.Add(images_.matrices.size_bytes())),
        result_at_(scratch_.Add(result_.size_bytes())),
        runs_(static_cast<size_t>(num_threads_ * kRuns * result_.columns)) {
    packed_.Apply(request.traits(1), "positions");
    if (request.node.inputs.size() > 2) bias_.emplace(request.input(2));
    if (request.node.attributes.Has("activation")) {
      activation_ = TileProgram(request.node.attributes.Program("activation"));
    }
    workspace_.resize(static_cast<size_t>(num_threads_) *
                      activation_.workspace_size());
    const memory::desc a = images_.matrices.Desc();
    const memory::desc b = weights_.matrices.Desc();
    const memory::desc c = result_.Desc();
    const dnnl::matmul::primitive_desc description(Engine(), a, b, c,
                                                   AttributesOf({}));
    product_ =
        Primitive(dnnl::matmul(description),
                  {{DNNL_ARG_SRC, a},
                   {DNNL_ARG_WEIGHTS, b},
                   {DNNL_ARG_DST, c},
                   {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}});
    scratchpad_at_ = scratch_.Add(description.scratchpad_desc().get_size());
  }

  void InputChanged(int input) override {
    if (input == 1) packed_.MarkChanged();
  }
  size_t scratch_size_bytes() const override {
    ScratchLayout scratch = scratch_;
    scratch.Add(packed_.scratch_size_bytes());
    return scratch.size_bytes();
  }
  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
    const auto place = [&](size_t offset) {
      return reinterpret_cast<float*>(bindings.scratch + offset);
    };
    images_data_ = place(images_at_);
    result_data_ = place(result_at_);
    // the last part, which may have become none
    weights_data_ = reinterpret_cast<float*>(
        packed_.Bind(bindings.scratch + scratch_.size_bytes()));
    const auto bind = [&](int argument, const float* data) {
      product_.Bind(argument, reinterpret_cast<const std::byte*>(data));
    };
    bind(DNNL_ARG_SRC, images_data_);
    bind(DNNL_ARG_WEIGHTS, weights_data_);
    bind(DNNL_ARG_DST, result_data_);
    bind(DNNL_ARG_SCRATCHPAD, place(scratchpad_at_));
  }

  void Launch(Stream& /*stream*/) override {
    const int64_t num_pieces = packed_.is_shared() ? PackMemory::kPieces : 1;
    packed_.Refresh(num_pieces, [&](int64_t piece) {
      weights_.Make(operands_.inputs[1], piece, num_pieces, weights_data_);
    });
    if (bias_) bias_->Load(operands_.inputs[2]);
    for (int64_t first = 0; first < tiling_.count; first += tiling_.block) {
      images_.Make(operands_.inputs[0], first, images_data_);
      product_.Run();
      tiling_.ForBlock(num_threads_, first,
                       [&](int thread, int64_t tile, int64_t i) {
                         if (tile < tiling_.count) StoreTile(thread, tile, i);
                       });
    }
  }

 private:
  // What a block makes stays in the second cache, about; the weights are read
  // once per block.
  static constexpr int64_t kTilesPerThread = 32;
  // Rows of pixels that a thread needs beside the result's own: those of a
  // tile, and one pixel for what lies outside.
  static constexpr int64_t kRuns = kSide * kSide + 1;

  // A bias as floats.
  class Bias {
   public:
    explicit Bias(const graph::TensorType& type)
        : dtype_(type.dtype),
          floats_(static_cast<size_t>(type.shape.num_elements())) {}
    void Load(const std::byte* data) {
      run_ = LoadRun(data, dtype_, 0, static_cast<int64_t>(floats_.size()),
                     floats_.data());
    }
    const float* data() const { return run_; }

   private:
    DType dtype_;
    std::vector<float> floats_;
    const float* run_ = nullptr;
  };

  void StoreTile(int thread, int64_t tile, int64_t number) {
    const int64_t n = result_.columns;
    const Tiling::Place at = tiling_.PlaceOf(tile);
    float* runs = runs_.data() + thread * kRuns * n;
    float* outside = runs + kSide * kSide * n;
    const int64_t rows = std::min(kSide, output_.shape[1] - at.row);
    const int64_t columns = std::min(kSide, output_.shape[2] - at.column);
    // the first element of each row of the tile, and where it is computed
    std::array<int64_t, kSide> begins{};
    std::array<float*, kSide> lines{};
    std::array<float*, kSide * kSide> pixels{};
    pixels.fill(outside);
    for (int64_t i = 0; i < rows; ++i) {
      const auto row = static_cast<size_t>(i);
      begins[row] =
          ((at.image * output_.shape[1] + at.row + i) * output_.shape[2] +
           at.column) *
          n;
      lines[row] = PlaceOfRun(operands_.outputs[0], output_.dtype, begins[row],
                              runs + i * kSide * n);
      for (int64_t j = 0; j < columns; ++j) {
        pixels[static_cast<size_t>(i * kSide + j)] = lines[row] + j * n;
      }
    }
    TransformResult(
        result_data_ + number * n, static_cast<size_t>(result_.stride),
        bias_ ? bias_->data() : nullptr, static_cast<size_t>(n), pixels.data());
    for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
      if (!activation_.is_empty()) {
        activation_.RunInPlace(
            lines[row], columns * n,
            workspace_.data() +
                static_cast<size_t>(thread) * activation_.workspace_size());
      }
      StoreRun(lines[row], operands_.outputs[0], output_.dtype, begins[row],
               columns * n);
    }
  }

  int num_threads_;
  graph::TensorType output_;
  Tiling tiling_;
  TransformedImages images_;
  TransformedWeights weights_;
  PackMemory packed_;
  PositionMatrices result_;  // [tiles, K]
  ScratchLayout scratch_;
  size_t images_at_, result_at_;
  size_t scratchpad_at_ = 0;
  std::optional<Bias> bias_;
  TileProgram activation_;
  std::vector<float> runs_;
  std::vector<float> workspace_;
  Primitive product_;
  Operands operands_;
  float* images_data_ = nullptr;
  float* result_data_ = nullptr;
  float* weights_data_ = nullptr;
};

// inputs: x, dy
class WinogradWeightGradientKernel : public Kernel {
 public:
  explicit WinogradWeightGradientKernel(const CpuRequest& request)
      : num_threads_(request.num_threads),
        tiling_(request.input(1).shape, kMostTiles),
        images_(request.input(0), tiling_,
                request.node.attributes.Int("padding"), num_threads_),
        gradients_(tiling_.block, request.input(1).shape[3]),
        gradient_pixels_(request.input(1)),
        weights_(images_.matrices.columns, gradients_.columns),
        images_at_(scratch_.Add(images_.matrices.size_bytes())),
        gradients_at_(scratch_.Add(gradients_.size_bytes())),
        weights_at_(scratch_.Add(weights_.size_bytes())),
        taps_(static_cast<size_t>(num_threads_ * kBlockTaps * kLanes)) {
    product_ = MakeProduct(AttributesOf({}));
    dnnl::post_ops sum;
    sum.append_sum();
    dnnl::primitive_attr attributes = AttributesOf({});
    attributes.set_post_ops(sum);
    product_and_sum_ = MakeProduct(attributes);
  }

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
    scratch_data_ = bindings.scratch;
    for (Primitive* product : {&product_, &product_and_sum_}) {
      product->Bind(DNNL_ARG_SRC, bindings.scratch + images_at_);
      product->Bind(DNNL_ARG_WEIGHTS, bindings.scratch + gradients_at_);
      product->Bind(DNNL_ARG_DST, bindings.scratch + weights_at_);
    }
    product_.Bind(DNNL_ARG_SCRATCHPAD, bindings.scratch + scratchpad_at_[0]);
    product_and_sum_.Bind(DNNL_ARG_SCRATCHPAD,
                          bindings.scratch + scratchpad_at_[1]);
  }

  void Launch(Stream& /*stream*/) override {
    for (int64_t first = 0; first < tiling_.count; first += tiling_.block) {
      images_.Make(operands_.inputs[0], first, Place(images_at_));
      MakeGradients(first);
      (first == 0 ? product_ : product_and_sum_).Run();
    }
    StoreWeights();
  }

 private:
  // The sums of a block are read and written once per block; for every number
  // of threads the same sums.
  static constexpr int64_t kMostTiles = 128;
  static constexpr int64_t kTaps = 9;
  // of a block's input channels and one output channel
  static constexpr int64_t kBlockTaps = kLanes * kTaps;

  Primitive MakeProduct(const dnnl::primitive_attr& attributes) {
    const memory::desc x = images_.matrices.Desc(/*is_transposed=*/true);
    const memory::desc dy = gradients_.Desc();
    const memory::desc dw = weights_.Desc();
    const dnnl::matmul::primitive_desc description(Engine(), x, dy, dw,
                                                   attributes);
    scratchpad_at_.push_back(
        scratch_.Add(description.scratchpad_desc().get_size()));
    return {dnnl::matmul(description),
            {{DNNL_ARG_SRC, x},
             {DNNL_ARG_WEIGHTS, dy},
             {DNNL_ARG_DST, dw},
             {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}}};
  }

  float* Place(size_t offset) const {
    return reinterpret_cast<float*>(scratch_data_ + offset);
  }

  void MakeGradients(int64_t first) const {
    tiling_.ForBlock(
        num_threads_, first, [&](int /*thread*/, int64_t tile, int64_t i) {
          const Tiling::Place at = tiling_.PlaceOf(tile);
          const auto pixels =
              gradient_pixels_.Find(operands_.inputs[1], tile < tiling_.count,
                                    at.image, at.row, at.column);
          TransformResultGradient(pixels.data(), gradient_pixels_.dtype(),
                                  static_cast<size_t>(gradients_.columns),
                                  Place(gradients_at_) + i * gradients_.columns,
                                  static_cast<size_t>(gradients_.stride));
        });
  }

  // From [C, O] per position to [O, C, 3, 3], in blocks of both channels, so
  // that lines of memory are written whole.
  void StoreWeights() {
    const float* positions = Place(weights_at_);
    auto* output = operands_.output<float>();
    ParallelFor(num_threads_, weights_.rows / kLanes,
                [&](int thread, int64_t begin, int64_t end) {
                  float* taps = taps_.data() + thread * kBlockTaps * kLanes;
                  for (int64_t c = begin * kLanes; c < end * kLanes;
                       c += kLanes) {
                    for (int64_t o = 0; o < weights_.columns; o += kLanes) {
                      StoreBlock(positions, c, o, taps, output);
                    }
                  }
                });
  }

  // `taps`: room for those of the block's channels, [C, 9, O].
  void StoreBlock(const float* positions, int64_t first_c, int64_t first_o,
                  float* taps, float* output) const {
    for (int64_t c = 0; c < kLanes; ++c) {
      TransformWeightGradient(
          positions + (first_c + c) * weights_.columns + first_o,
          static_cast<size_t>(weights_.stride), kWinogradChannels,
          taps + c * kTaps * kLanes);
    }
    for (int64_t o = 0; o < kLanes; ++o) {
      float* to = output + kTaps * ((first_o + o) * weights_.rows + first_c);
      for (int64_t i = 0; i < kBlockTaps; ++i) to[i] = taps[i * kLanes + o];
    }
  }

  int num_threads_;
  Tiling tiling_;
  TransformedImages images_;
  PositionMatrices gradients_;  // [tiles, O]
  PixelsOfTile<kSide> gradient_pixels_;
  PositionMatrices weights_;  // [C, O]
  ScratchLayout scratch_;
  size_t images_at_, gradients_at_, weights_at_;
  std::vector<size_t> scratchpad_at_;
  // of each thread, [block of C, 9, block of O]
  std::vector<float> taps_;
  Primitive product_;
  Primitive product_and_sum_;
  Operands operands_;
  std::byte* scratch_data_ = nullptr;
};

}  // namespace

bool PrefersWinograd(const CpuRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const bool is_weight_gradient =
      request.node.op->name == "Conv2dWeightGradient";
  const bool is_input_gradient = request.node.op->name == "Conv2dInputGradient";
  const Shape& w =
      is_weight_gradient ? request.output().shape : request.input(1).shape;
  const Shape& y = is_weight_gradient  ? request.input(1).shape
                   : is_input_gradient ? request.input(0).shape
                                       : request.output().shape;
  const Shape& to = is_input_gradient ? request.output().shape : y;
  if (w[2] != 3 || w[3] != 3 || attributes.Int("stride") != 1 ||
      attributes.Int("padding") > 2 || w[0] % kLanes != 0 ||
      w[1] % kLanes != 0 || to.num_elements() == 0) {
    return false;
  }
  if (ComputeTypeOf(request.input(0).dtype) != memory::data_type::f32 ||
      (is_weight_gradient && request.output().dtype != DType::kF32)) {
    return false;
  }
  // few channels do not pay for the transforms of images, few tiles not for
  // those of weights; forward, where these are read in another order than they
  // lie, many weights want more tiles
  constexpr int64_t kFewestChannels = 32;
  constexpr int64_t kManyWeights = 1 << 17;  // per tap
  const bool is_gradient = is_weight_gradient || is_input_gradient;
  const int64_t fewest_pixels =
      is_gradient || w[0] * w[1] < kManyWeights ? 512 : 1024;
  return std::min(w[0], w[1]) >= kFewestChannels &&
         to.num_elements() / to[3] >= fewest_pixels;
}

std::unique_ptr<Kernel> MakeWinogradConv(const CpuRequest& request) {
  return std::make_unique<WinogradConvKernel>(request, /*is_adjoint=*/false);
}

std::unique_ptr<Kernel> MakeWinogradInputGradient(const CpuRequest& request) {
  return std::make_unique<WinogradConvKernel>(request, /*is_adjoint=*/true);
}

std::unique_ptr<Kernel> MakeWinogradWeightGradient(const CpuRequest& request) {
  return std::make_unique<WinogradWeightGradientKernel>(request);
}

}  // namespace replicant::kernels::cpu
