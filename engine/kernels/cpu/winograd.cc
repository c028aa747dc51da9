#include "engine/kernels/cpu/winograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "engine/kernels/cpu/pack_memory.h"
#include "engine/kernels/cpu/primitive.h"
#include "engine/kernels/cpu/stored.h"
#include "engine/kernels/cpu/tile_program.h"
#include "engine/kernels/cpu/window_loops.h"
#include "engine/kernels/cpu/winograd_operands.h"
#include "engine/kernels/cpu/winograd_transforms.h"

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
// With few channels a product is too small for oneDNN, and a block too short to
// share. There the loops of windows (window_loops.h) multiply, with a tile as a
// window of one row, and each thread computes separate blocks.
//
// The gradient of the input is the same convolution with the kernel turned by
// half a turn. The gradient of the weights multiplies transformed images by
// transformed result gradients, adds over the blocks, and transforms the sum
// back once.
//
// Images and weights of bf16 are read as floats; transforms and products are in
// f32, and a result is rounded once. Winograd's method adds an error of a
// thousandth of that rounding.
namespace replicant::kernels::cpu {
namespace {

using dnnl::memory;

constexpr int64_t kManyWeights = 1 << 17;  // per tap

// Whether the loops of windows multiply, for weights of so many channels.
bool HasFewChannels(const Shape& w) { return std::max(w[0], w[1]) <= 32; }

// Weights [from, to] in the order of the loops of windows.
PositionMatrices WindowWeights(int64_t from, int64_t to) {
  return PositionMatrices::ByBlocks(from, to, WindowLanes());
}

// A block's tiles of `from` channels as windows, by weights to `to` channels.
Windows TileWindows(int64_t num_tiles, int64_t from, int64_t to) {
  return {.height = 1,
          .width = from,
          .step_down = 1,
          .step = from,
          .down = 1,
          .across = num_tiles,
          .channels = to};
}

// Conv2d, and its adjoint. The adjoint is a convolution too: of dy, padded with
// 2 - padding zeros, and the weights turned by half a turn.
class WinogradConvKernel : public Kernel {
 public:
  WinogradConvKernel(const CpuRequest& request, bool is_adjoint)
      : has_few_channels_(HasFewChannels(request.input(1).shape)),
        num_threads_(request.num_threads),
        team_(has_few_channels_ ? 1 : num_threads_),
        output_(request.output()),
        element_size_(static_cast<int64_t>(DTypeSize(output_.dtype))),
        height_(output_.shape[1]),
        width_(output_.shape[2]),
        tiling_(output_.shape,
                TilesPerThread(request.input(1).shape) * int64_t{team_},
                has_few_channels_ ? Tiling::BlockSize::kAny
                                  : Tiling::BlockSize::kOdd),
        images_(request.input(0), tiling_, ImageForm(request.input(0).shape[3]),
                is_adjoint ? 2 - request.node.attributes.Int("padding")
                           : request.node.attributes.Int("padding"),
                team_),
        weights_(request.input(1),
                 has_few_channels_
                     ? WindowWeights(images_.matrices.columns, output_.shape[3])
                     : PositionMatrices::ForProductOf(images_.matrices,
                                                      output_.shape[3]),
                 is_adjoint, num_threads_),
        packed_(weights_.matrices.size_bytes()),
        result_(tiling_.block, output_.shape[3]),
        windows_(TileWindows(tiling_.block, images_.matrices.columns,
                             result_.columns)),
        zeros_(static_cast<size_t>(result_.columns)),
        images_at_(AddToScratch(images_.matrices)),
        result_at_(AddToScratch(result_)),
        runs_(static_cast<size_t>(num_threads_ * kRuns * result_.columns)) {
    packed_.Apply(request.traits(1), fmt::format("positions in blocks of {}",
                                                 weights_.matrices.block));
    if (request.node.inputs.size() > 2) bias_.emplace(request.input(2));
    if (request.node.attributes.Has("activation")) {
      activation_ = TileProgram(request.node.attributes.Program("activation"));
    }
    workspace_.resize(static_cast<size_t>(num_threads_) *
                      activation_.workspace_size());
    if (has_few_channels_) return;
    const memory::desc a = images_.matrices.Desc();
    const memory::desc b = weights_.matrices.Desc();
    const memory::desc c = result_.Desc();
    product_ =
        Product(a, b, /*bias=*/{}, c, AttributesOf({}), team_, &scratch_);
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
    // the last part, empty unless every launch packs
    weights_data_ = reinterpret_cast<float*>(
        packed_.Bind(bindings.scratch + scratch_.size_bytes()));
    if (has_few_channels_) return;
    const auto bind = [&](int argument, const float* data) {
      product_.Bind(argument, reinterpret_cast<const std::byte*>(data));
    };
    bind(DNNL_ARG_SRC, images_data_);
    bind(DNNL_ARG_WEIGHTS, weights_data_);
    bind(DNNL_ARG_DST, result_data_);
    product_.BindScratch(bindings.scratch);
  }

  void Launch(Stream& /*stream*/) override {
    const int64_t num_pieces = packed_.is_shared() ? PackMemory::kPieces : 1;
    packed_.Refresh(num_pieces, [&](int64_t piece) {
      weights_.Make(operands_.inputs[1], piece, num_pieces, weights_data_);
    });
    if (bias_) bias_->Load(operands_.inputs[2]);
    const int64_t num_blocks =
        (tiling_.count + tiling_.block - 1) / tiling_.block;
    ParallelFor(NumTeams(), num_blocks,
                [&](int team, int64_t begin, int64_t end) {
                  for (int64_t block = begin; block < end; ++block) {
                    ComputeBlock(team, block * tiling_.block);
                  }
                });
  }

 private:
  // The intermediate values of a block stay in the second-level cache, while
  // the weights are read once per block: where they do not stay there either,
  // fewer and larger blocks are faster.
  static int64_t TilesPerThread(const Shape& w) {
    constexpr int64_t kWeightsOfCache = 1 << 16;  // per tap
    if (HasFewChannels(w)) return 28;             // whole loops
    return w[0] * w[1] < kWeightsOfCache ? 32 : 96;
  }
  PositionMatrices ImageForm(int64_t channels) const {
    return has_few_channels_ ? PositionMatrices::ByBlocks(
                                   tiling_.block, channels, Windows::kBlock)
                             : PositionMatrices(tiling_.block, channels);
  }
  int NumTeams() const { return num_threads_ / team_; }
  // A block's matrices of each team.
  size_t AddToScratch(const PositionMatrices& matrices) {
    return scratch_.Add(static_cast<size_t>(NumTeams()) *
                        matrices.size_bytes());
  }
  // Rows of pixels that a thread needs in addition to the result's: the rows of
  // a tile, and one pixel for positions outside the image.
  static constexpr int64_t kRuns = kTileSide * kTileSide + 1;

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

  void ComputeBlock(int team, int64_t first) {
    const auto number = static_cast<size_t>(team);
    float* images = images_data_ + number * images_.matrices.size();
    float* result = result_data_ + number * result_.size();
    images_.Make(operands_.inputs[0], first, images);
    Multiply(images, result);
    tiling_.ForBlock(team_, first, [&](int thread, int64_t tile, int64_t i) {
      if (tile < tiling_.count) {
        StoreTile(team * team_ + thread, tile, result + i * result_.row_size);
      }
    });
  }

  void Multiply(const float* images, float* result) {
    if (!has_few_channels_) return product_.Run();
    const float* weights = weights_data_;
    for (size_t p = 0; p < kWinogradPositions; ++p) {
      ConvolveWindows(windows_, images, weights, zeros_.data(), result);
      images += images_.matrices.stride;
      weights += weights_.matrices.stride;
      result += result_.stride;
    }
  }

  // `result`: the tile's row of the products.
  void StoreTile(int thread, int64_t tile, const float* result) {
    const int64_t n = result_.columns;
    const Tiling::Place at = tiling_.PlaceOf(tile);
    float* runs = runs_.data() + thread * kRuns * n;
    float* outside = runs + kTileSide * kTileSide * n;
    const int64_t rows = std::min(kTileSide, height_ - at.row);
    const int64_t columns = std::min(kTileSide, width_ - at.column);
    // for each row of the tile: its first element, and where it is computed
    std::array<int64_t, kTileSide> begins{};
    std::array<float*, kTileSide> lines{};
    std::array<float*, kTileSide * kTileSide> pixels{};
    pixels.fill(outside);
    for (int64_t i = 0; i < rows; ++i) {
      const auto row = static_cast<size_t>(i);
      begins[row] =
          ((at.image * height_ + at.row + i) * width_ + at.column) * n;
      // the next tile's
      Prefetch<Access::kWrite>(
          operands_.outputs[0] + (begins[row] + kTileSide * n) * element_size_,
          kTileSide * n * element_size_);
      lines[row] = PlaceOfRun(operands_.outputs[0], output_.dtype, begins[row],
                              runs + i * kTileSide * n);
      for (int64_t j = 0; j < columns; ++j) {
        pixels[static_cast<size_t>(i * kTileSide + j)] = lines[row] + j * n;
      }
    }
    TransformResult(result, result_.places(), bias_ ? bias_->data() : nullptr,
                    static_cast<size_t>(n), pixels.data());
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

  bool has_few_channels_;
  int num_threads_;
  int team_;  // threads that compute a block
  graph::TensorType output_;
  int64_t element_size_, height_, width_;  // of the output
  Tiling tiling_;
  TransformedImages images_;
  TransformedWeights weights_;
  PackMemory packed_;
  PositionMatrices result_;  // [tiles, K]
  Windows windows_;
  std::vector<float> zeros_;
  ScratchLayout scratch_;
  size_t images_at_, result_at_;
  std::optional<Bias> bias_;
  TileProgram activation_;
  std::vector<float> runs_;
  std::vector<float> workspace_;
  Product product_;
  Operands operands_;
  float* images_data_ = nullptr;
  float* result_data_ = nullptr;
  float* weights_data_ = nullptr;
};

// inputs: x, dy
class WinogradWeightGradientKernel : public Kernel {
 public:
  explicit WinogradWeightGradientKernel(const CpuRequest& request)
      : has_few_channels_(HasFewChannels(request.output().shape)),
        num_threads_(request.num_threads),
        tiling_(request.input(1).shape, kMostTiles, Tiling::BlockSize::kOdd),
        images_(request.input(0), tiling_,
                PositionMatrices(tiling_.block, request.input(0).shape[3]),
                request.node.attributes.Int("padding"), num_threads_),
        gradients_(tiling_.block, request.input(1).shape[3]),
        gradient_pixels_(request.input(1)),
        weights_(has_few_channels_ ? WindowWeights(images_.matrices.columns,
                                                   gradients_.columns)
                                   : PositionMatrices(images_.matrices.columns,
                                                      gradients_.columns)),
        images_at_(scratch_.Add(images_.matrices.size_bytes())),
        gradients_at_(scratch_.Add(gradients_.size_bytes())),
        weights_at_(scratch_.Add(weights_.size_bytes())),
        taps_(static_cast<size_t>(num_threads_ * kBlockTaps * kWinogradLanes)) {
    if (has_few_channels_) return;
    const memory::desc x = images_.matrices.TransposedDesc();
    const memory::desc dy = gradients_.Desc();
    const memory::desc dw = weights_.Desc();
    product_ = Product(x, dy, /*bias=*/{}, dw, AttributesOf({}), num_threads_,
                       &scratch_);
    dnnl::post_ops sum;
    sum.append_sum();
    dnnl::primitive_attr attributes = AttributesOf({});
    attributes.set_post_ops(sum);
    product_and_sum_ =
        Product(x, dy, /*bias=*/{}, dw, attributes, num_threads_, &scratch_);
  }

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    operands_ = {.inputs = bindings.inputs, .outputs = bindings.outputs};
    scratch_data_ = bindings.scratch;
    if (has_few_channels_) return;
    for (Product* product : {&product_, &product_and_sum_}) {
      product->Bind(DNNL_ARG_SRC, bindings.scratch + images_at_);
      product->Bind(DNNL_ARG_WEIGHTS, bindings.scratch + gradients_at_);
      product->Bind(DNNL_ARG_DST, bindings.scratch + weights_at_);
      product->BindScratch(bindings.scratch);
    }
  }

  void Launch(Stream& /*stream*/) override {
    for (int64_t first = 0; first < tiling_.count; first += tiling_.block) {
      images_.Make(operands_.inputs[0], first, Place(images_at_));
      MakeGradients(first);
      Multiply(/*is_first=*/first == 0);
    }
    StoreWeights();
  }

 private:
  // The sums are read and written once per block. The number does not depend on
  // the threads, so neither do the sums.
  static constexpr int64_t kMostTiles = 128;
  // of a block's input channels and one output channel
  static constexpr int64_t kBlockTaps = kWinogradLanes * kTaps;

  float* Place(size_t offset) const {
    return reinterpret_cast<float*>(scratch_data_ + offset);
  }

  // Adds a block's products to the sums, or sets them.
  void Multiply(bool is_first) {
    if (!has_few_channels_) {
      return (is_first ? product_ : product_and_sum_).Run();
    }
    const Windows windows =
        TileWindows(tiling_.block, weights_.rows, weights_.columns);
    ParallelFor(num_threads_, kWinogradPositions,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t p = begin; p < end; ++p) {
                    float* sums = Place(weights_at_) + p * weights_.stride;
                    if (is_first) std::fill_n(sums, weights_.stride, 0.0f);
                    AddWindowGradient(
                        windows,
                        Place(images_at_) + p * images_.matrices.stride,
                        Place(gradients_at_) + p * gradients_.stride, sums);
                  }
                });
  }

  void MakeGradients(int64_t first) const {
    tiling_.ForBlock(
        num_threads_, first, [&](int /*thread*/, int64_t tile, int64_t i) {
          const auto find = [&](int64_t of_tile) {
            const Tiling::Place at = tiling_.PlaceOf(of_tile);
            return gradient_pixels_.Find(operands_.inputs[1],
                                         of_tile < tiling_.count, at.image,
                                         at.row, at.column);
          };
          gradient_pixels_.Fetch(find(tile + kTilesAhead));
          TransformResultGradient(
              find(tile).data(), gradient_pixels_.dtype(),
              static_cast<size_t>(gradients_.columns),
              Place(gradients_at_) + i * gradients_.row_size,
              gradients_.places());
        });
  }

  // Converts [C, O] per position to [O, C, 3, 3], in blocks of both channels,
  // so that cache lines are written whole.
  void StoreWeights() {
    const float* positions = Place(weights_at_);
    auto* output = operands_.output<float>();
    ParallelFor(
        num_threads_, weights_.rows / kWinogradLanes,
        [&](int thread, int64_t begin, int64_t end) {
          float* taps = taps_.data() + thread * kBlockTaps * kWinogradLanes;
          for (int64_t c = begin * kWinogradLanes; c < end * kWinogradLanes;
               c += kWinogradLanes) {
            for (int64_t o = 0; o < weights_.columns; o += kWinogradLanes) {
              StoreBlock(positions, c, o, taps, output);
            }
          }
        });
  }

  // `taps`: scratch for the block's channels, [C, 9, O].
  void StoreBlock(const float* positions, int64_t first_c, int64_t first_o,
                  float* taps, float* output) const {
    for (int64_t c = 0; c < kWinogradLanes; ++c) {
      const PositionPlaces places = weights_.places();
      TransformWeightGradient(
          positions + (first_c + c) * weights_.row_size +
              places.OfChannel(static_cast<size_t>(first_o)),
          places, kWinogradChannels, taps + c * kTaps * kWinogradLanes);
    }
    for (int64_t o = 0; o < kWinogradLanes; ++o) {
      float* to = output + kTaps * ((first_o + o) * weights_.rows + first_c);
      for (int64_t i = 0; i < kBlockTaps; ++i)
        to[i] = taps[i * kWinogradLanes + o];
    }
  }

  bool has_few_channels_;
  int num_threads_;
  Tiling tiling_;
  TransformedImages images_;
  PositionMatrices gradients_;  // [tiles, O]
  PixelsOfTile<kTileSide> gradient_pixels_;
  PositionMatrices weights_;  // [C, O]
  ScratchLayout scratch_;
  size_t images_at_, gradients_at_, weights_at_;
  // of each thread, [block of C, 9, block of O]
  std::vector<float> taps_;
  Product product_;
  Product product_and_sum_;
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
      attributes.Int("padding") > 2 || w[0] % kWinogradLanes != 0 ||
      w[1] % kWinogradLanes != 0 || to.num_elements() == 0) {
    return false;
  }
  if (is_weight_gradient && request.output().dtype != DType::kF32) return false;
  // the transforms of images pay off with enough channels, the transforms of
  // weights with enough tiles; forward, where the weights are read out of
  // order, many weights need more tiles
  const bool is_gradient = is_weight_gradient || is_input_gradient;
  const bool has_many_weights = w[0] * w[1] >= kManyWeights;
  const int64_t num_pixels = to.num_elements() / to[3];
  int64_t fewest_channels = 32;
  int64_t fewest_pixels = is_gradient || !has_many_weights ? 512 : 1024;
  if (ComputeTypeOf(request.input(0).dtype) != memory::data_type::f32) {
    // the direct loops multiply bf16 at twice the rate of f32, so that a
    // quarter of the products pays only if little else is added to them
    if (!is_weight_gradient) fewest_channels = 64;
    if (has_many_weights) fewest_pixels = 1024;
    const Tiling tiling(to, /*max_tiles_per_block=*/1, Tiling::BlockSize::kAny);
    const int64_t tiled = tiling.count * kTileSide * kTileSide;
    if (!is_weight_gradient && 2 * tiled > 3 * num_pixels) return false;
  }
  return std::min(w[0], w[1]) >= fewest_channels && num_pixels >= fewest_pixels;
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
