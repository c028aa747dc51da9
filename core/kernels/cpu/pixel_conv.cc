#include <algorithm>
#include <cstring>
#include <vector>

#include "core/base/parallel.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/pack_memory.h"
#include "core/kernels/cpu/primitive.h"
#include "core/kernels/cpu/tile_program.h"
#include "core/kernels/cpu/window_loops.h"

// Convolutions of the first layer, which read pixels. oneDNN's would pad the
// few channels to a whole vector, and would need the batch as floats in memory.
// Here the thread that uses an image converts it to floats in its cache. A
// thread takes the next image when it is free, so that a thread displaced by
// other processes delays nobody.
namespace replicant::kernels::cpu {
namespace {

size_t FloatBytes(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

Windows WindowsOf(const graph::Attributes& attributes, const Shape& x,
                  const Shape& w, const Shape& y) {
  const int64_t stride = attributes.Int("stride");
  return {.height = w[2],
          .width = w[3] * x[3],
          .step_down = stride,
          .step = stride * x[3],
          .down = y[1],
          .across = y[2],
          .channels = w[0]};
}

// The images of a batch of pixels [B, H, W, C]: shifted, scaled, padded.
class PixelImages {
 public:
  PixelImages(const CpuRequest& request, const Windows& windows)
      : windows_(windows),
        height_(request.input(0).shape[1]),
        width_(request.input(0).shape[2]),
        channels_(request.input(0).shape[3]),
        padding_(request.node.attributes.Int("padding")),
        scale_(static_cast<float>(request.node.attributes.Float("scale"))),
        offset_(static_cast<float>(request.node.attributes.Float("offset"))),
        is_shifted_(request.node.attributes.Has("is_shifted")) {}

  // Pixels of one row, and as many more as the loops read.
  size_t row_size_bytes() const {
    const int64_t padded = (width_ + 2 * padding_) * channels_;
    return static_cast<size_t>(std::max(padded, windows_.plain_row_size()) +
                               Windows::kBlock);
  }
  void Bind(const KernelBindings& bindings) {
    pixels_ = reinterpret_cast<const uint8_t*>(bindings.inputs[0]);
    if (is_shifted_) {
      offsets_ = reinterpret_cast<const int32_t*>(bindings.inputs.back());
    }
  }

  // Makes image n as rows by blocks, or as plain rows. `row`: row_size_bytes().
  void MakeBlocks(int64_t n, uint8_t* row, float* image) const {
    Make(
        n, row, windows_.blocked_row_size(), image,
        [&](float* to) { PixelsToBlocks(windows_, row, scale_, offset_, to); },
        [&](int64_t i) { return windows_.BlockedPlace(i); });
  }
  void MakePlain(int64_t n, uint8_t* row, float* image) const {
    Make(
        n, row, windows_.plain_row_size(), image,
        [&](float* to) {
          PixelsToRow(row, windows_.plain_row_size(), scale_, offset_, to);
        },
        [](int64_t i) { return i; });
  }

 private:
  // convert(to): the numbers of `row`; place(i): where number i of a row goes.
  template <typename Convert, typename Place>
  void Make(int64_t n, uint8_t* row, int64_t row_size, float* image,
            const Convert& convert, const Place& place) const {
    const int64_t down = is_shifted_ ? offsets_[2 * n] : 0;
    const int64_t right = is_shifted_ ? offsets_[2 * n + 1] : 0;
    const int64_t before = padding_ * channels_;
    const int64_t after =
        std::min(before + width_ * channels_, windows_.plain_row_size());
    for (int64_t r = 0; r < windows_.num_rows(); ++r, image += row_size) {
      const int64_t i = r - padding_;
      if (i < 0 || i >= height_) {
        std::fill_n(image, row_size, 0.0f);
        continue;
      }
      const int64_t from = std::clamp<int64_t>(i + down, 0, height_ - 1);
      CopyRow(n * height_ + from, right, row + before);
      convert(image);
      if (padding_ == 0) continue;
      for (int64_t k = 0; k < before; ++k) image[place(k)] = 0.0f;
      for (int64_t k = after; k < windows_.plain_row_size(); ++k) {
        image[place(k)] = 0.0f;
      }
    }
  }

  // Row `line` of all images, each pixel from `right` pixels further on, with
  // the first or last one repeated.
  void CopyRow(int64_t line, int64_t right, uint8_t* to) const {
    const auto pixel = static_cast<size_t>(channels_);
    const uint8_t* from = pixels_ + line * width_ * channels_;
    const auto copy = [&](int64_t source, int64_t target, int64_t count) {
      std::memcpy(to + target * channels_, from + source * channels_,
                  static_cast<size_t>(count) * pixel);
    };
    // pixels of the result that have one of their own
    const int64_t first = std::clamp<int64_t>(-right, 0, width_);
    const int64_t last = std::clamp<int64_t>(width_ - right, first, width_);
    for (int64_t j = 0; j < first; ++j) copy(0, j, 1);
    if (last > first) copy(first + right, first, last - first);
    const int64_t border = right > 0 ? width_ - 1 : 0;
    for (int64_t j = last; j < width_; ++j) copy(border, j, 1);
  }

  Windows windows_;
  int64_t height_, width_, channels_;
  int64_t padding_;
  float scale_;
  float offset_;
  bool is_shifted_;
  const uint8_t* pixels_ = nullptr;
  const int32_t* offsets_ = nullptr;
};

// Weights [O, C, KH, KW] in the order of the loops: vectors of channels.
class WindowWeights {
 public:
  explicit WindowWeights(const Shape& w)
      : o_(w[0]),
        c_(w[1]),
        kh_(w[2]),
        kw_(w[3]),
        lanes_(WindowLanes()),
        num_vectors_((o_ + lanes_ - 1) / lanes_) {}

  int64_t num_channels() const { return num_vectors_ * lanes_; }
  int64_t size() const { return num_channels() * c_ * kh_ * kw_; }

  // Elements beyond the last channel are 0.
  void Pack(const float* w, float* packed) const {
    for (int64_t vector = 0; vector < num_vectors_; ++vector) {
      ForRuns([&](int64_t at) {
        for (int64_t lane = 0; lane < lanes_; ++lane) {
          const int64_t o = vector * lanes_ + lane;
          *packed++ = o < o_ ? w[o * c_ * kh_ * kw_ + at] : 0.0f;
        }
      });
    }
  }
  void Unpack(const float* packed, float* w) const {
    for (int64_t vector = 0; vector < num_vectors_; ++vector) {
      const int64_t first = vector * lanes_;
      const int64_t count = std::min(lanes_, o_ - first);
      ForRuns([&](int64_t at) {
        for (int64_t lane = 0; lane < count; ++lane) {
          w[(first + lane) * c_ * kh_ * kw_ + at] = packed[lane];
        }
        packed += lanes_;
      });
    }
  }

 private:
  // Calls visit(offset in a channel's weights) in the order of the loops.
  template <typename Visit>
  void ForRuns(const Visit& visit) const {
    for (int64_t u = 0; u < kh_; ++u) {
      for (int64_t v = 0; v < kw_; ++v) {
        for (int64_t c = 0; c < c_; ++c) visit((c * kh_ + u) * kw_ + v);
      }
    }
  }

  int64_t o_, c_, kh_, kw_;
  int64_t lanes_;
  int64_t num_vectors_;
};

// A thread's scratch memory for one image.
class ThreadScratch {
 public:
  ThreadScratch(int num_threads, size_t row_size_bytes, size_t image_floats,
                size_t workspace_floats, ScratchLayout* scratch)
      : num_threads_(num_threads) {
    ScratchLayout one;
    row_ = one.Add(row_size_bytes);
    image_ = one.Add(image_floats * sizeof(float));
    workspace_ = one.Add(workspace_floats * sizeof(float));
    size_bytes_ = one.size_bytes();
    offset_ = scratch->Add(size_bytes_ * static_cast<size_t>(num_threads));
  }

  int num_threads() const { return num_threads_; }
  void Bind(std::byte* scratch) { base_ = scratch + offset_; }
  uint8_t* row(int thread) const {
    return reinterpret_cast<uint8_t*>(Of(thread) + row_);
  }
  float* image(int thread) const {
    return reinterpret_cast<float*>(Of(thread) + image_);
  }
  float* workspace(int thread) const {
    return reinterpret_cast<float*>(Of(thread) + workspace_);
  }

 private:
  std::byte* Of(int thread) const {
    return base_ + static_cast<size_t>(thread) * size_bytes_;
  }

  int num_threads_;
  size_t row_ = 0;
  size_t image_ = 0;
  size_t workspace_ = 0;
  size_t size_bytes_ = 0;
  size_t offset_ = 0;
  std::byte* base_ = nullptr;
};

TileProgram ActivationOf(const graph::Attributes& attributes) {
  return attributes.Has("activation")
             ? TileProgram(attributes.Program("activation"))
             : TileProgram();
}

// inputs: x, w, bias or none, offsets or none
class PixelConvKernel : public Kernel {
 public:
  explicit PixelConvKernel(const CpuRequest& request)
      : windows_(WindowsOf(request.node.attributes, request.input(0).shape,
                           request.input(1).shape, request.output().shape)),
        images_(request, windows_),
        weights_(request.input(1).shape),
        packed_(FloatBytes(weights_.size())),
        activation_(ActivationOf(request.node.attributes)),
        batch_(request.output().shape[0]),
        has_bias_(request.node.inputs.size() > 2 &&
                  request.input(2).dtype == DType::kF32),
        threads_(request.num_threads, images_.row_size_bytes(),
                 static_cast<size_t>(windows_.num_rows() *
                                     windows_.blocked_row_size()),
                 activation_.workspace_size(), &scratch_),
        bias_(scratch_.Add(FloatBytes(weights_.num_channels()))) {
    packed_.Keep(request.traits(1));
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
    w_ = reinterpret_cast<const float*>(bindings.inputs[1]);
    if (has_bias_) {
      given_bias_ = reinterpret_cast<const float*>(bindings.inputs[2]);
    }
    // the last part, empty unless every launch packs
    packed_weights_ = reinterpret_cast<float*>(
        packed_.Bind(bindings.scratch + scratch_.size_bytes()));
    padded_bias_ = reinterpret_cast<float*>(bindings.scratch + bias_);
    y_ = reinterpret_cast<float*>(bindings.outputs[0]);
  }
  void Launch(Stream& /*stream*/) override {
    packed_.Refresh(
        1, [&](int64_t /*piece*/) { weights_.Pack(w_, packed_weights_); });
    std::fill_n(padded_bias_, weights_.num_channels(), 0.0f);
    if (has_bias_) std::copy_n(given_bias_, windows_.channels, padded_bias_);
    const int64_t size = windows_.down * windows_.across * windows_.channels;
    ParallelForEach(threads_.num_threads(), batch_, [&](int thread, int64_t n) {
      float* image = threads_.image(thread);
      float* y = y_ + n * size;
      images_.MakeBlocks(n, threads_.row(thread), image);
      ConvolveWindows(windows_, image, packed_weights_, padded_bias_, y);
      if (!activation_.is_empty()) {
        activation_.RunInPlace(y, size, threads_.workspace(thread));
      }
    });
  }

 private:
  ScratchLayout scratch_;
  Windows windows_;
  PixelImages images_;
  WindowWeights weights_;
  PackMemory packed_;
  TileProgram activation_;
  int64_t batch_;
  bool has_bias_;
  ThreadScratch threads_;
  size_t bias_;
  const float* w_ = nullptr;
  const float* given_bias_ = nullptr;
  float* packed_weights_ = nullptr;
  float* padded_bias_ = nullptr;
  float* y_ = nullptr;
};

// inputs: x, dy, offsets or none. The batch is divided into the same parts for
// every number of threads, and their sums are added in order.
class PixelWeightGradientKernel : public Kernel {
 public:
  explicit PixelWeightGradientKernel(const CpuRequest& request)
      : windows_(WindowsOf(request.node.attributes, request.input(0).shape,
                           request.output().shape, request.input(1).shape)),
        images_(request, windows_),
        weights_(request.output().shape),
        batch_(request.input(0).shape[0]),
        // an empty batch needs one part, which writes the gradient
        num_parts_(std::clamp<int64_t>(batch_, 1, kParts)),
        threads_(request.num_threads, images_.row_size_bytes(),
                 static_cast<size_t>(windows_.num_rows() *
                                     windows_.plain_row_size()),
                 0, &scratch_),
        sums_(scratch_.Add(FloatBytes(num_parts_ * weights_.size()))) {}

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    images_.Bind(bindings);
    threads_.Bind(bindings.scratch);
    dy_ = reinterpret_cast<const float*>(bindings.inputs[1]);
    parts_ = reinterpret_cast<float*>(bindings.scratch + sums_);
    dw_ = reinterpret_cast<float*>(bindings.outputs[0]);
  }
  void Launch(Stream& /*stream*/) override {
    ParallelForEach(threads_.num_threads(), num_parts_,
                    [&](int thread, int64_t part) { AddUp(thread, part); });
    const int64_t size = weights_.size();
    ParallelFor(ThreadsFor(threads_.num_threads(), size * num_parts_), size,
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t part = 1; part < num_parts_; ++part) {
                    const float* more = parts_ + part * size;
#pragma omp simd
                    for (int64_t i = begin; i < end; ++i) parts_[i] += more[i];
                  }
                });
    weights_.Unpack(parts_, dw_);
  }

 private:
  // enough to share them out evenly, few enough to stay in the cache
  static constexpr int64_t kParts = 16;

  void AddUp(int thread, int64_t part) const {
    float* sum = parts_ + part * weights_.size();
    std::fill_n(sum, weights_.size(), 0.0f);
    const int64_t size = windows_.down * windows_.across * windows_.channels;
    const int64_t end = batch_ * (part + 1) / num_parts_;
    for (int64_t n = batch_ * part / num_parts_; n < end; ++n) {
      images_.MakePlain(n, threads_.row(thread), threads_.image(thread));
      AddWindowGradient(windows_, threads_.image(thread), dy_ + n * size, sum);
    }
  }

  ScratchLayout scratch_;
  Windows windows_;
  PixelImages images_;
  WindowWeights weights_;
  int64_t batch_;
  int64_t num_parts_;
  ThreadScratch threads_;
  size_t sums_;
  const float* dy_ = nullptr;
  float* parts_ = nullptr;
  float* dw_ = nullptr;
};

template <typename KernelType>
std::unique_ptr<Kernel> Make(const CpuRequest& request) {
  return std::make_unique<KernelType>(request);
}

}  // namespace

bool ShouldReadPixels(const KernelRequest& conv) {
  const graph::TensorType& x = conv.input(0);
  // a row's step must fill at least half of a block: otherwise the loops do
  // little work and spread it over much memory
  return x.dtype == DType::kF32 &&
         2 * conv.node.attributes.Int("stride") * x.shape[3] >= Windows::kBlock;
}

void AddPixelConvKernels(CpuKernelTable& table) {
  table["PixelConv2d"] = {.make = &Make<PixelConvKernel>,
                          .why_not = &WhyNotF32};
  table["PixelConv2dWeightGradient"] = {
      .make = &Make<PixelWeightGradientKernel>, .why_not = &WhyNotF32};
}

}  // namespace replicant::kernels::cpu
