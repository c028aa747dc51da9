#include <algorithm>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/pack_memory.h"
#include "engine/kernels/cpu/pixel_operands.h"
#include "engine/kernels/cpu/stored.h"
#include "engine/kernels/cpu/tile_program.h"
#include "engine/kernels/cpu/window_winograd.h"

// Convolutions of the first layer, which read pixels. oneDNN's would pad the
// few channels to a whole vector, and would need the batch as numbers in
// memory. Here the thread that uses an image converts it to numbers in its
// cache. A thread takes the next image when it is free, so that a thread
// displaced by other processes delays no other.
//
// In bf16 the numbers of an image are rounded after scaling, as everywhere.
// (The pixels themselves would be exact in bf16; but padding is 0 after
// scaling, and a result would be the difference of two larger sums.) If the
// processor multiplies bf16, the loops do too; otherwise they compute in f32.
//
// In f32 Winograd's method takes fewer products if the windows have two steps
// (window_winograd.h).
namespace replicant::kernels::cpu {
namespace {

size_t FloatBytes(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

// Whether the loops of bf16 compute operands of this dtype.
bool MultipliesBF16(DType dtype) {
  return dtype == DType::kBF16 &&
         ComputeTypeOf(dtype) == dnnl::memory::data_type::bf16;
}

std::optional<WindowTiles> TilesOf(const Windows& windows, DType dtype,
                                   const graph::Attributes& attributes) {
  if (dtype != DType::kF32 || attributes.Int("padding") != 0 ||
      !WindowTiles::Prefer(windows)) {
    return {};
  }
  return WindowTiles(windows);
}

TileProgram ActivationOf(const graph::Attributes& attributes) {
  return attributes.Has("activation")
             ? TileProgram(attributes.Program("activation"))
             : TileProgram();
}

// inputs: x, w, bias or none, offsets or none
class PixelConvKernel : public Kernel {
 public:
  explicit PixelConvKernel(const CpuRequest& request)
      : dtype_(request.output().dtype),
        multiplies_bf16_(MultipliesBF16(dtype_)),
        windows_(WindowsOf(request.node.attributes, request.input(0).shape,
                           request.input(1).shape, request.output().shape)),
        tiles_(TilesOf(windows_, dtype_, request.node.attributes)),
        images_(request, tiles_ ? tiles_->covered() : windows_, dtype_),
        weights_(windows_, request.input(1).shape,
                 multiplies_bf16_ ? kPairLanes : WindowLanes()),
        packed_(PackedBytes()),
        activation_(ActivationOf(request.node.attributes)),
        batch_(request.output().shape[0]),
        block_(BlockOf(windows_)),
        threads_(
            request.num_threads,
            {images_.rows_size_bytes(), ImageBytes(),
             FloatBytes(static_cast<int64_t>(activation_.workspace_size())),
             dtype_ == DType::kF32
                 ? 0
                 : FloatBytes(block_.down * block_.across * block_.channels),
             tiles_ ? FloatBytes(WindowTiles::kCells * tiles_->cells_size())
                    : 0,
             tiles_
                 ? FloatBytes(WindowTiles::kPositions * tiles_->products_size())
                 : 0},
            &scratch_),
        bias_(scratch_.Add(FloatBytes(weights_.num_channels()))),
        of_windows_(scratch_.Add(tiles_ ? FloatBytes(weights_.size()) : 0)) {
    packed_.Keep(request.traits(1));
    if (request.node.inputs.size() > 2 &&
        graph::IsFloating(request.input(2).dtype)) {
      bias_dtype_ = request.input(2).dtype;
    }
  }

  void InputChanged(int input) override {
    if (input == 1) packed_.MarkChanged();
  }
  size_t scratch_size_bytes() const override {
    return scratch_.size_bytes() + packed_.scratch_size_bytes();
  }
  void Bind(const KernelBindings& bindings) override {
    images_.Bind(bindings);
    threads_.Bind(bindings.scratch);
    w_ = bindings.inputs[1];
    if (bias_dtype_) given_bias_ = bindings.inputs[2];
    // the last part, empty unless every launch packs
    packed_weights_ = packed_.Bind(bindings.scratch + scratch_.size_bytes());
    padded_bias_ = reinterpret_cast<float*>(bindings.scratch + bias_);
    window_weights_ = reinterpret_cast<float*>(bindings.scratch + of_windows_);
    y_ = bindings.outputs[0];
  }
  void Launch(Stream& /*stream*/) override {
    packed_.Refresh(1, [&](int64_t /*piece*/) { Pack(); });
    std::fill_n(padded_bias_, weights_.num_channels(), 0.0f);
    if (bias_dtype_) {
      const float* bias = LoadRun(given_bias_, *bias_dtype_, 0,
                                  windows_.channels, padded_bias_);
      if (bias != padded_bias_) {
        std::copy_n(bias, windows_.channels, padded_bias_);
      }
    }
    ParallelForEach(threads_.num_threads(), batch_, [&](int thread, int64_t n) {
      if (tiles_) {
        ConvolveTiles(thread, n);
        return;
      }
      MakeImage(thread, n);
      for (int64_t row = 0; row < windows_.down; row += block_.down) {
        ConvolveRows(thread, n, row);
      }
    });
  }

 private:
  enum Part : size_t { kRows, kImage, kWorkspace, kResult, kCells, kProducts };

  // As many rows of windows as keep their results in the first-level cache
  // until the activation has read them.
  static Windows BlockOf(Windows windows) {
    constexpr int64_t kFirstLevelFloats = 4 * 1024;
    const int64_t row_size =
        std::max<int64_t>(1, windows.across * windows.channels);
    windows.down =
        std::clamp<int64_t>(kFirstLevelFloats / row_size, 1, windows.down);
    return windows;
  }
  size_t ImageBytes() const {
    if (tiles_) return images_.pixels_size_bytes();
    return static_cast<size_t>(windows_.num_rows() *
                               windows_.blocked_row_size()) *
           (multiplies_bf16_ ? sizeof(BFloat16) : sizeof(float));
  }
  size_t PackedBytes() const {
    if (tiles_) {
      return FloatBytes(WindowTiles::kPositions * tiles_->weights_size());
    }
    return multiplies_bf16_
               ? static_cast<size_t>(weights_.num_pairs()) * sizeof(BF16Pair)
               : FloatBytes(weights_.size());
  }
  void Pack() {
    if (tiles_) {
      weights_.Pack(reinterpret_cast<const float*>(w_), window_weights_);
      TransformWindowWeights(*tiles_, window_weights_,
                             reinterpret_cast<float*>(packed_weights_));
    } else if (multiplies_bf16_) {
      weights_.PackPairs(reinterpret_cast<const BFloat16*>(w_),
                         reinterpret_cast<BF16Pair*>(packed_weights_));
    } else if (dtype_ == DType::kBF16) {
      weights_.Pack(reinterpret_cast<const BFloat16*>(w_),
                    reinterpret_cast<float*>(packed_weights_));
    } else {
      weights_.Pack(reinterpret_cast<const float*>(w_),
                    reinterpret_cast<float*>(packed_weights_));
    }
  }
  void MakeImage(int thread, int64_t n) const {
    auto* rows = threads_.part<uint8_t>(thread, kRows);
    if (multiplies_bf16_) {
      images_.MakeBlocks(n, rows, threads_.part<BFloat16>(thread, kImage));
    } else {
      images_.MakeBlocks(n, rows, threads_.part<float>(thread, kImage));
    }
  }
  // Rows of image n's result, from `row` on, with bias and activation.
  void ConvolveRows(int thread, int64_t n, int64_t row) const {
    Windows part = block_;
    part.down = std::min(block_.down, windows_.down - row);
    const int64_t row_size = windows_.across * windows_.channels;
    const int64_t begin = (n * windows_.down + row) * row_size;
    const int64_t size = part.down * row_size;
    float* y =
        PlaceOfRun(y_, dtype_, begin, threads_.part<float>(thread, kResult));
    const int64_t first =
        row * windows_.step_down * windows_.blocked_row_size();
    if (multiplies_bf16_) {
      ConvolveWindowsOfBF16(
          part, threads_.part<BFloat16>(thread, kImage) + first,
          reinterpret_cast<const BF16Pair*>(packed_weights_), padded_bias_, y);
    } else {
      ConvolveWindows(part, threads_.part<float>(thread, kImage) + first,
                      reinterpret_cast<const float*>(packed_weights_),
                      padded_bias_, y);
    }
    Activate(thread, y, size);
    StoreRun(y, y_, dtype_, begin, size);
  }
  // Image n's result by tiles, with bias and activation.
  void ConvolveTiles(int thread, int64_t n) const {
    const PixelRows pixels =
        images_.LoadPixels(n, threads_.part<uint8_t>(thread, kImage));
    auto* cells = threads_.part<float>(thread, kCells);
    auto* products = threads_.part<float>(thread, kProducts);
    tiles_->ForParts([&](const TilePart& part) {
      TransformCells(*tiles_, pixels, part, CellOrder::kBlocks, cells);
      ConvolveCells(*tiles_, part, cells,
                    reinterpret_cast<const float*>(packed_weights_), products);
    });
    const int64_t size = windows_.down * windows_.across * windows_.channels;
    float* y = reinterpret_cast<float*>(y_) + n * size;
    TransformProducts(*tiles_, products, padded_bias_, y);
    Activate(thread, y, size);
  }
  void Activate(int thread, float* y, int64_t size) const {
    if (activation_.is_empty()) return;
    activation_.RunInPlace(y, size, threads_.part<float>(thread, kWorkspace));
  }

  DType dtype_;
  bool multiplies_bf16_;
  ScratchLayout scratch_;
  Windows windows_;
  std::optional<WindowTiles> tiles_;
  PixelImages images_;
  WindowWeights weights_;
  PackMemory packed_;
  TileProgram activation_;
  int64_t batch_;
  Windows block_;
  ThreadScratch threads_;
  size_t bias_;
  size_t of_windows_;
  std::optional<DType> bias_dtype_;  // none: no bias
  const std::byte* w_ = nullptr;
  const std::byte* given_bias_ = nullptr;
  std::byte* packed_weights_ = nullptr;
  float* padded_bias_ = nullptr;
  float* window_weights_ = nullptr;  // before their transform
  std::byte* y_ = nullptr;
};

// inputs: x, dy, offsets or none. The batch is divided into the same parts for
// every number of threads, and their sums are added in order.
class PixelWeightGradientKernel : public Kernel {
 public:
  explicit PixelWeightGradientKernel(const CpuRequest& request)
      : dtype_(request.input(1).dtype),
        result_dtype_(request.output().dtype),
        multiplies_bf16_(MultipliesBF16(dtype_)),
        windows_(WindowsOf(request.node.attributes, request.input(0).shape,
                           request.output().shape, request.input(1).shape)),
        tiles_(TilesOf(windows_, dtype_, request.node.attributes)),
        images_(request, tiles_ ? tiles_->covered() : windows_, dtype_),
        weights_(windows_, request.output().shape,
                 multiplies_bf16_ ? kPairLanes : WindowLanes()),
        sum_size_(tiles_ ? WindowTiles::kPositions * tiles_->weights_size()
                         : weights_.size()),
        batch_(request.input(0).shape[0]),
        gradient_size_(windows_.down * windows_.across * windows_.channels),
        // an empty batch needs one part, which writes the gradient
        num_parts_(std::clamp<int64_t>(tiles_ ? batch_ / kImagesOfSum : batch_,
                                       1, kParts)),
        threads_(
            request.num_threads,
            {images_.rows_size_bytes(),
             // floats of an image, or pairs of two
             tiles_
                 ? images_.pixels_size_bytes()
                 : FloatBytes(windows_.num_rows() * windows_.plain_row_size()),
             GradientBytes(),
             tiles_ ? FloatBytes(WindowTiles::kCells * tiles_->cells_size())
                    : 0},
            &scratch_),
        sums_(scratch_.Add(FloatBytes(num_parts_ * sum_size_))),
        of_windows_(scratch_.Add(tiles_ ? FloatBytes(weights_.size()) : 0)),
        unpacked_(scratch_.Add(result_dtype_ == DType::kF32
                                   ? 0
                                   : FloatBytes(NumWeights(request)))),
        num_weights_(NumWeights(request)) {}

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    images_.Bind(bindings);
    threads_.Bind(bindings.scratch);
    dy_ = bindings.inputs[1];
    parts_ = reinterpret_cast<float*>(bindings.scratch + sums_);
    window_weights_ = reinterpret_cast<float*>(bindings.scratch + of_windows_);
    dw_ = bindings.outputs[0];
    dw_floats_ =
        PlaceOfRun(dw_, result_dtype_, 0,
                   reinterpret_cast<float*>(bindings.scratch + unpacked_));
  }
  void Launch(Stream& /*stream*/) override {
    ParallelForEach(threads_.num_threads(), num_parts_,
                    [&](int thread, int64_t part) { AddUp(thread, part); });
    const int64_t size = sum_size_;
    ParallelFor(ThreadsFor(threads_.num_threads(), size * num_parts_), size,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t part = 1; part < num_parts_; ++part) {
                    const float* more = parts_ + part * size;
#pragma omp simd
                    for (int64_t i = begin; i < end; ++i) parts_[i] += more[i];
                  }
                });
    if (tiles_) {
      TransformWindowWeightGradient(*tiles_, parts_, window_weights_);
    }
    weights_.Unpack(tiles_ ? window_weights_ : parts_, dw_floats_);
    StoreRun(dw_floats_, dw_, result_dtype_, 0, num_weights_);
  }

 private:
  // enough to share them out evenly, few enough to stay in the cache
  static constexpr int64_t kParts = 16;
  // by tiles the sums are four times as large
  static constexpr int64_t kImagesOfSum = 8;
  enum Part : size_t { kRows, kImage, kGradient, kCells };

  static int64_t NumWeights(const CpuRequest& request) {
    return request.output().shape.num_elements();
  }
  // Scratch memory for dy of an image as floats, or of two as pairs.
  // By tiles, for the gradients of the products.
  size_t GradientBytes() const {
    if (tiles_) {
      return FloatBytes(WindowTiles::kPositions * tiles_->products_size());
    }
    if (dtype_ == DType::kF32) return 0;
    const int64_t channels =
        multiplies_bf16_ ? weights_.num_channels() : windows_.channels;
    return FloatBytes(windows_.down * windows_.across * channels);
  }

  void AddUp(int thread, int64_t part) const {
    float* sum = parts_ + part * sum_size_;
    std::fill_n(sum, sum_size_, 0.0f);
    const int64_t begin = batch_ * part / num_parts_;
    const int64_t end = batch_ * (part + 1) / num_parts_;
    if (multiplies_bf16_) {
      for (int64_t n = begin; n < end; n += 2) {
        AddPair(thread, n, n + 1 < end, sum);
      }
    } else {
      for (int64_t n = begin; n < end; ++n) {
        tiles_ ? AddTiles(thread, n, sum) : AddImage(thread, n, sum);
      }
    }
  }
  void AddTiles(int thread, int64_t n, float* sum) const {
    const PixelRows pixels =
        images_.LoadPixels(n, threads_.part<uint8_t>(thread, kImage));
    auto* cells = threads_.part<float>(thread, kCells);
    auto* products = threads_.part<float>(thread, kGradient);
    TransformTileGradients(
        *tiles_, reinterpret_cast<const float*>(dy_) + n * gradient_size_,
        products);
    tiles_->ForParts([&](const TilePart& part) {
      TransformCells(*tiles_, pixels, part, CellOrder::kPlain, cells);
      AddCellGradient(*tiles_, part, cells, products, sum);
    });
  }
  void AddImage(int thread, int64_t n, float* sum) const {
    auto* image = threads_.part<float>(thread, kImage);
    images_.MakePlain(n, threads_.part<uint8_t>(thread, kRows), image);
    const float* dy = LoadRun(dy_, dtype_, n * gradient_size_, gradient_size_,
                              threads_.part<float>(thread, kGradient));
    AddWindowGradient(windows_, image, dy, sum);
  }
  // Images n and n + 1, or n alone.
  void AddPair(int thread, int64_t n, bool has_second, float* sum) const {
    auto* images = threads_.part<BF16Pair>(thread, kImage);
    images_.MakePairs(n, has_second ? n + 1 : n,
                      threads_.part<uint8_t>(thread, kRows), images);
    const auto* first =
        reinterpret_cast<const BFloat16*>(dy_) + n * gradient_size_;
    auto* dy = threads_.part<BF16Pair>(thread, kGradient);
    RowsToPairs(first, has_second ? first + gradient_size_ : nullptr,
                windows_.down * windows_.across, windows_.channels, dy);
    AddWindowGradientOfPairs(windows_, images, dy, sum);
  }

  DType dtype_;
  DType result_dtype_;
  bool multiplies_bf16_;
  ScratchLayout scratch_;
  Windows windows_;
  std::optional<WindowTiles> tiles_;
  PixelImages images_;
  WindowWeights weights_;
  int64_t sum_size_;  // of a part
  int64_t batch_;
  int64_t gradient_size_;  // of an image
  int64_t num_parts_;
  ThreadScratch threads_;
  size_t sums_;
  size_t of_windows_;
  size_t unpacked_;
  int64_t num_weights_;
  const std::byte* dy_ = nullptr;
  float* parts_ = nullptr;
  float* window_weights_ = nullptr;  // by tiles, the transformed sum
  std::byte* dw_ = nullptr;
  float* dw_floats_ = nullptr;
};

template <typename KernelType>
std::unique_ptr<Kernel> Make(const CpuRequest& request) {
  return std::make_unique<KernelType>(request);
}

}  // namespace

bool ShouldReadPixels(const KernelRequest& conv) {
  const graph::TensorType& x = conv.input(0);
  // a row's step must fill at least half of a block: otherwise the loops do
  // little work spread over much memory
  return (x.dtype == DType::kF32 || x.dtype == DType::kBF16) &&
         2 * conv.node.attributes.Int("stride") * x.shape[3] >= Windows::kBlock;
}

void AddPixelConvKernels(CpuKernelTable& table) {
  table["PixelConv2d"] = {.make = &Make<PixelConvKernel>,
                          .why_not = &WhyNotF32OrBF16};
  table["PixelConv2dWeightGradient"] = {
      .make = &Make<PixelWeightGradientKernel>, .why_not = &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cpu
