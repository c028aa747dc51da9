#include "engine/kernels/cpu/product_conv.h"

#include <cstring>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "engine/kernels/cpu/primitive.h"

namespace replicant::kernels::cpu {
namespace {

using dnnl::memory;

// The tensor of a convolution that the op computes from the other two.
enum class Made { kY, kX, kW };

Made MadeBy(const graph::Node& node) {
  if (node.op->name == "Conv2dInputGradient") return Made::kX;
  return node.op->name == "Conv2dWeightGradient" ? Made::kW : Made::kY;
}

// inputs: x, w, perhaps a bias; dy, w; or x, dy
struct ConvTypes {
  explicit ConvTypes(const KernelRequest& request)
      : made(MadeBy(request.node)),
        x(made == Made::kX ? request.output() : request.input(0)),
        w(made == Made::kW ? request.output() : request.input(1)),
        y(made == Made::kY   ? request.output()
          : made == Made::kX ? request.input(0)
                             : request.input(1)) {}

  // The type of the rows that windows see of x, [P, C KH KW].
  graph::TensorType Rows() const {
    return {x.dtype, Shape({y.shape[0] * y.shape[1] * y.shape[2],
                            w.shape.num_elements() / w.shape[0]})};
  }

  Made made;
  const graph::TensorType& x;  // [B, H, W, C]
  const graph::TensorType& w;  // [O, C, KH, KW]
  const graph::TensorType& y;  // [B, H', W', O]
};

// The pixels under each window of a convolution, one row per window, in the
// order of the weights. The rows are copied together, unless the image already
// has them in order.
class SeenRows {
 public:
  SeenRows(const ConvTypes& types, const graph::Attributes& attributes,
           int num_threads)
      : x_(types.x.shape),
        y_(types.y.shape),
        stride_(attributes.Int("stride")),
        padding_(attributes.Int("padding")),
        height_(types.w.shape[2]),
        width_(types.w.shape[3]),
        element_bytes_(DTypeSize(types.x.dtype)),
        num_threads_(
            ThreadsFor(num_threads, types.Rows().shape.num_elements())) {}

  bool are_image() const { return stride_ == 1 && is_of_pixels(); }

  void Gather(const std::byte* images, std::byte* rows) const {
    if (is_of_pixels()) {
      ForLines(rows, [&](int64_t line, std::byte* to) {
        const std::byte* from = images + LineBytes(LineOf(line));
        for (int64_t j = 0; j < y_[2]; ++j) {
          std::memcpy(to + PixelBytes(j), from + PixelBytes(j * stride_),
                      PixelBytes(1));
        }
      });
    } else if (element_bytes_ == sizeof(float)) {
      GatherWindows<float>(images, rows);
    } else {
      GatherWindows<BFloat16>(images, rows);
    }
  }

  // For windows of one pixel. Pixels that no window sees become 0.
  void Scatter(const std::byte* rows, std::byte* images) const {
    ParallelFor(num_threads_, x_[0] * x_[1],
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t line = begin; line < end; ++line) {
                    std::byte* to = images + LineBytes(line);
                    std::memset(to, 0, LineBytes(1));
                    const int64_t i = line % x_[1];
                    if (i % stride_ != 0 || i / stride_ >= y_[1]) continue;
                    const int64_t row = line / x_[1] * y_[1] + i / stride_;
                    const std::byte* from = rows + PixelBytes(row * y_[2]);
                    for (int64_t j = 0; j < y_[2]; ++j) {
                      std::memcpy(to + PixelBytes(j * stride_),
                                  from + PixelBytes(j), PixelBytes(1));
                    }
                  }
                });
  }

 private:
  bool is_of_pixels() const {
    return height_ == 1 && width_ == 1 && padding_ == 0;
  }
  size_t PixelBytes(int64_t num_pixels) const {
    return static_cast<size_t>(num_pixels * x_[3]) * element_bytes_;
  }
  // Size of lines of the images.
  size_t LineBytes(int64_t num_lines) const {
    return PixelBytes(num_lines * x_[2]);
  }
  // The first line of the images that the windows of a line of the result see,
  // without padding.
  int64_t LineOf(int64_t line) const {
    return line / y_[1] * x_[1] + line % y_[1] * stride_;
  }

  // Calls run(line, its rows) for all lines of the result.
  template <typename Run>
  void ForLines(std::byte* rows, const Run& run) const {
    const size_t bytes = PixelBytes(y_[2] * height_ * width_);
    ParallelFor(num_threads_, y_[0] * y_[1],
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t line = begin; line < end; ++line) {
                    run(line, rows + static_cast<size_t>(line) * bytes);
                  }
                });
  }

  template <typename T>
  void GatherWindows(const std::byte* images, std::byte* rows) const {
    const int64_t taps = height_ * width_;
    ForLines(rows, [&](int64_t line, std::byte* row) {
      const int64_t image = line / y_[1];
      const int64_t top = line % y_[1] * stride_ - padding_;
      auto* to = reinterpret_cast<T*>(row);
      for (int64_t j = 0; j < y_[2]; ++j, to += x_[3] * taps) {
        for (int64_t tap = 0; tap < taps; ++tap) {
          const int64_t r = top + tap / width_;
          const int64_t c = j * stride_ - padding_ + tap % width_;
          const bool is_inside = r >= 0 && r < x_[1] && c >= 0 && c < x_[2];
          if (!is_inside) {
            for (int64_t k = 0; k < x_[3]; ++k) to[k * taps + tap] = T();
            continue;
          }
          const auto* pixel = reinterpret_cast<const T*>(
              images + PixelBytes((image * x_[1] + r) * x_[2] + c));
          for (int64_t k = 0; k < x_[3]; ++k) to[k * taps + tap] = pixel[k];
        }
      }
    });
  }

  Shape x_, y_;
  int64_t stride_, padding_;
  int64_t height_, width_;  // of a window
  size_t element_bytes_;
  int num_threads_;
};

class ProductConvKernel : public Kernel {
 public:
  explicit ProductConvKernel(const CpuRequest& request)
      : ProductConvKernel(request, ConvTypes(request)) {}

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    // written only if the op makes images
    images_ = made_ == Made::kX ? bindings.outputs[0]
                                : const_cast<std::byte*>(bindings.inputs[0]);
    rows_ = seen_.are_image() ? images_ : bindings.scratch + rows_at_;
    const auto bind = [&](int argument, ConvertedOperand& operand,
                          const std::byte* stored) {
      product_.Bind(argument, operand.Bind(stored, bindings.scratch));
    };
    switch (made_) {
      case Made::kY:
        bind(DNNL_ARG_SRC, x_, rows_);
        bind(DNNL_ARG_WEIGHTS, w_, bindings.inputs[1]);
        bind(DNNL_ARG_DST, y_, bindings.outputs[0]);
        break;
      case Made::kX:
        bind(DNNL_ARG_SRC, y_, bindings.inputs[0]);
        bind(DNNL_ARG_WEIGHTS, w_, bindings.inputs[1]);
        bind(DNNL_ARG_DST, x_, rows_);
        break;
      case Made::kW:
        bind(DNNL_ARG_SRC, y_, bindings.inputs[1]);
        bind(DNNL_ARG_WEIGHTS, x_, rows_);
        bind(DNNL_ARG_DST, w_, bindings.outputs[0]);
        break;
    }
    if (bias_) bind(DNNL_ARG_BIAS, *bias_, bindings.inputs[2]);
    product_.BindScratch(bindings.scratch);
  }

  void Launch(Stream& /*stream*/) override {
    const bool is_copied = !seen_.are_image();
    if (is_copied && made_ != Made::kX) seen_.Gather(images_, rows_);
    if (made_ != Made::kX) x_.Load();
    if (made_ != Made::kW) w_.Load();
    if (made_ != Made::kY) y_.Load();
    if (bias_) bias_->Load();
    product_.Run();
    Result().Store();
    if (is_copied && made_ == Made::kX) seen_.Scatter(rows_, images_);
  }

 private:
  ProductConvKernel(const CpuRequest& request, const ConvTypes& types)
      : made_(types.made),
        seen_(types, request.node.attributes, request.num_threads),
        x_(types.Rows(), request.num_threads, &scratch_),
        w_(types.w, request.num_threads, &scratch_),
        y_(types.y, request.num_threads, &scratch_) {
    const int64_t p = types.Rows().shape[0];
    const int64_t c = types.Rows().shape[1];
    const int64_t o = types.y.shape[3];
    const DType x_type = types.x.dtype;
    const DType w_type = types.w.dtype;
    const DType y_type = types.y.dtype;
    switch (made_) {
      case Made::kY:
        MakeProduct(request, Matrix(p, c, /*is_transposed=*/false, x_type),
                    Matrix(c, o, /*is_transposed=*/true, w_type),
                    Matrix(p, o, /*is_transposed=*/false, y_type));
        break;
      case Made::kX:
        MakeProduct(request, Matrix(p, o, /*is_transposed=*/false, y_type),
                    Matrix(o, c, /*is_transposed=*/false, w_type),
                    Matrix(p, c, /*is_transposed=*/false, x_type));
        break;
      case Made::kW:
        MakeProduct(request, Matrix(o, p, /*is_transposed=*/true, y_type),
                    Matrix(p, c, /*is_transposed=*/false, x_type),
                    Matrix(o, c, /*is_transposed=*/false, w_type));
        break;
    }
    if (!seen_.are_image()) {
      rows_at_ = scratch_.Add(static_cast<size_t>(p * c) * DTypeSize(x_type));
    }
  }

  void MakeProduct(const CpuRequest& request, const memory::desc& a,
                   const memory::desc& b, const memory::desc& result) {
    memory::desc bias;
    if (request.node.inputs.size() > 2) {
      const graph::TensorType& type = request.input(2);
      bias_.emplace(type, request.num_threads, &scratch_);
      bias = Matrix(1, type.shape[0], /*is_transposed=*/false, type.dtype);
    }
    product_ =
        Product(a, b, bias, result, AttributesOf(request.node.attributes),
                request.num_threads, &scratch_);
  }

  const ConvertedOperand& Result() const {
    if (made_ == Made::kX) return x_;
    return made_ == Made::kW ? w_ : y_;
  }

  const Made made_;
  const SeenRows seen_;
  ScratchLayout scratch_;
  ConvertedOperand x_;  // [P, C KH KW]
  ConvertedOperand w_;
  ConvertedOperand y_;
  std::optional<ConvertedOperand> bias_;
  Product product_;
  size_t rows_at_ = 0;
  std::byte* images_ = nullptr;
  std::byte* rows_ = nullptr;
};

}  // namespace

bool PrefersProduct(const CpuRequest& request) {
  const ConvTypes types(request);
  const graph::Attributes& attributes = request.node.attributes;
  if (types.x.shape.num_elements() == 0 || types.w.shape.num_elements() == 0) {
    return false;
  }
  const int64_t num_pixels = types.Rows().shape[0];
  const int64_t num_weights = types.w.shape.num_elements();
  if (types.w.shape[2] != 1 || types.w.shape[3] != 1 ||
      attributes.Int("padding") != 0) {
    constexpr int64_t kFewestWeights = 1 << 20;
    if (num_weights < kFewestWeights) return false;
    if (types.made == Made::kY) {
      // oneDNN's direct loops compute a row of the result at a time, four
      // pixels of an image of 4x4; bf16 and fewer pixels were not measured
      return num_pixels >= 256 && num_pixels <= 512 &&
             ComputeTypeOf(types.x.dtype) == memory::data_type::f32;
    }
    // unpacking the gradient has a fixed cost, however few the pixels
    return types.made == Made::kW && num_pixels <= 511;
  }
  if (types.made == Made::kW) {
    // oneDNN's convolution has no fast loops for the gradient of many weights,
    // however many the pixels. With a stride and channels that do not fill its
    // vectors it writes past its scratch memory (3.2, AVX-512)
    constexpr int64_t kFewestWeights = 1 << 17;
    return attributes.Int("stride") > 1 || num_weights >= kFewestWeights;
  }
  // oneDNN's other loops are as fast as the product; packing the weights has a
  // fixed cost, however few the pixels
  constexpr int64_t kMostPixels = 1024;
  return num_pixels <= kMostPixels;
}

std::unique_ptr<Kernel> MakeProductConv(const CpuRequest& request) {
  REPLICANT_CHECK(PrefersProduct(request), "{}", request.node.name);
  return std::make_unique<ProductConvKernel>(request);
}

}  // namespace replicant::kernels::cpu
