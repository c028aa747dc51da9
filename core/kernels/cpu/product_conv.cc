#include "core/kernels/cpu/pointwise_conv.h"

#include <cstring>
#include <optional>
#include <vector>

#include "core/base/check.h"
#include "core/kernels/cpu/parallel.h"
#include "core/kernels/cpu/primitive.h"

namespace replicant::kernels::cpu {
namespace {

using dnnl::memory;

// Which of a convolution's tensors the op makes of the other two.
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

  // The pixels of x that windows see, [P, C].
  graph::TensorType SeenX() const {
    return {x.dtype, Shape({y.shape[0] * y.shape[1] * y.shape[2], x.shape[3]})};
  }

  Made made;
  const graph::TensorType& x;  // [B, H, W, C]
  const graph::TensorType& w;  // [O, C, 1, 1]
  const graph::TensorType& y;  // [B, H', W', O]
};

// The pixels of images that windows of one pixel see: with a stride some of
// them, which are brought together in memory of their own, [P, C].
class SeenPixels {
 public:
  SeenPixels(const graph::TensorType& x, const Shape& y, int64_t stride,
             int num_threads)
      : x_(x.shape),
        y_(y),
        stride_(stride),
        pixel_bytes_(static_cast<size_t>(x_[3]) * DTypeSize(x.dtype)),
        num_threads_(ThreadsFor(num_threads, x_.num_elements())) {}

  bool are_all() const { return stride_ == 1; }

  void Gather(const std::byte* images, std::byte* pixels) const {
    ParallelFor(num_threads_, y_[0] * y_[1],
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t row = begin; row < end; ++row) {
                    const std::byte* from =
                        images +
                        LineBytes(row / y_[1] * x_[1] + row % y_[1] * stride_);
                    std::byte* to = pixels + Bytes(row * y_[2]);
                    for (int64_t j = 0; j < y_[2]; ++j) {
                      std::memcpy(to + Bytes(j), from + Bytes(j * stride_),
                                  pixel_bytes_);
                    }
                  }
                });
  }

  // What no window sees becomes 0.
  void Scatter(const std::byte* pixels, std::byte* images) const {
    ParallelFor(num_threads_, x_[0] * x_[1],
                [&](int /*thread*/, int64_t begin, int64_t end) {
                  for (int64_t line = begin; line < end; ++line) {
                    std::byte* to = images + LineBytes(line);
                    std::memset(to, 0, LineBytes(1));
                    const int64_t i = line % x_[1];
                    if (i % stride_ != 0 || i / stride_ >= y_[1]) continue;
                    const int64_t row = line / x_[1] * y_[1] + i / stride_;
                    const std::byte* from = pixels + Bytes(row * y_[2]);
                    for (int64_t j = 0; j < y_[2]; ++j) {
                      std::memcpy(to + Bytes(j * stride_), from + Bytes(j),
                                  pixel_bytes_);
                    }
                  }
                });
  }

 private:
  size_t Bytes(int64_t num_pixels) const {
    return static_cast<size_t>(num_pixels) * pixel_bytes_;
  }
  // Of lines of the images.
  size_t LineBytes(int64_t num_lines) const { return Bytes(num_lines * x_[2]); }

  Shape x_, y_;
  int64_t stride_;
  size_t pixel_bytes_;
  int num_threads_;
};

class PointwiseConvKernel : public Kernel {
 public:
  explicit PointwiseConvKernel(const CpuRequest& request)
      : PointwiseConvKernel(request, ConvTypes(request)) {}

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    // written where they are made only
    images_ = made_ == Made::kX ? bindings.outputs[0]
                                : const_cast<std::byte*>(bindings.inputs[0]);
    pixels_ = seen_.are_all() ? images_ : bindings.scratch + pixels_at_;
    const auto bind = [&](int argument, ConvertedOperand& operand,
                          const std::byte* stored) {
      product_.Bind(argument, operand.Bind(stored, bindings.scratch));
    };
    switch (made_) {
      case Made::kY:
        bind(DNNL_ARG_SRC, x_, pixels_);
        bind(DNNL_ARG_WEIGHTS, w_, bindings.inputs[1]);
        bind(DNNL_ARG_DST, y_, bindings.outputs[0]);
        break;
      case Made::kX:
        bind(DNNL_ARG_SRC, y_, bindings.inputs[0]);
        bind(DNNL_ARG_WEIGHTS, w_, bindings.inputs[1]);
        bind(DNNL_ARG_DST, x_, pixels_);
        break;
      case Made::kW:
        bind(DNNL_ARG_SRC, y_, bindings.inputs[1]);
        bind(DNNL_ARG_WEIGHTS, x_, pixels_);
        bind(DNNL_ARG_DST, w_, bindings.outputs[0]);
        break;
    }
    if (bias_) bind(DNNL_ARG_BIAS, *bias_, bindings.inputs[2]);
    product_.Bind(DNNL_ARG_SCRATCHPAD, bindings.scratch + scratchpad_at_);
  }

  void Launch(Stream& /*stream*/) override {
    const bool is_copied = !seen_.are_all();
    if (is_copied && made_ != Made::kX) seen_.Gather(images_, pixels_);
    if (made_ != Made::kX) x_.Load();
    if (made_ != Made::kW) w_.Load();
    if (made_ != Made::kY) y_.Load();
    if (bias_) bias_->Load();
    product_.Run();
    Result().Store();
    if (is_copied && made_ == Made::kX) seen_.Scatter(pixels_, images_);
  }

 private:
  PointwiseConvKernel(const CpuRequest& request, const ConvTypes& types)
      : made_(types.made),
        seen_(types.x, types.y.shape, request.node.attributes.Int("stride"),
              request.num_threads),
        x_(types.SeenX(), request.num_threads, &scratch_),
        w_(types.w, request.num_threads, &scratch_),
        y_(types.y, request.num_threads, &scratch_) {
    const int64_t p = types.SeenX().shape[0];
    const int64_t c = types.x.shape[3];
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
    if (!seen_.are_all()) {
      pixels_at_ = scratch_.Add(static_cast<size_t>(p * c) * DTypeSize(x_type));
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
    const dnnl::matmul::primitive_desc description(
        Engine(), a, b, bias, result, AttributesOf(request.node.attributes));
    std::vector<Primitive::Argument> arguments = {
        {DNNL_ARG_SRC, a},
        {DNNL_ARG_WEIGHTS, b},
        {DNNL_ARG_DST, result},
        {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}};
    if (bias_) arguments.emplace_back(DNNL_ARG_BIAS, bias);
    product_ = Primitive(dnnl::matmul(description), arguments);
    scratchpad_at_ = scratch_.Add(description.scratchpad_desc().get_size());
  }

  const ConvertedOperand& Result() const {
    if (made_ == Made::kX) return x_;
    return made_ == Made::kW ? w_ : y_;
  }

  const Made made_;
  const SeenPixels seen_;
  ScratchLayout scratch_;
  ConvertedOperand x_;  // [P, C]
  ConvertedOperand w_;
  ConvertedOperand y_;
  std::optional<ConvertedOperand> bias_;
  Primitive product_;
  size_t scratchpad_at_ = 0;
  size_t pixels_at_ = 0;
  // all, and those that are seen
  std::byte* images_ = nullptr;
  std::byte* pixels_ = nullptr;
};

}  // namespace

bool PrefersProduct(const CpuRequest& request) {
  const ConvTypes types(request);
  const graph::Attributes& attributes = request.node.attributes;
  if (types.w.shape[2] != 1 || types.w.shape[3] != 1 ||
      attributes.Int("padding") != 0 || types.x.shape.num_elements() == 0 ||
      types.w.shape.num_elements() == 0) {
    return false;
  }
  if (types.made == Made::kW) {
    // oneDNN's convolution has no fast loops for the gradient of many weights,
    // however many the pixels; with a stride and channels that do not fill its
    // vectors it writes past its scratch memory (3.2, AVX-512)
    constexpr int64_t kFewestWeights = 1 << 17;
    return attributes.Int("stride") > 1 ||
           types.w.shape.num_elements() >= kFewestWeights;
  }
  // its other loops are as fast as the product; packing the weights costs what
  // it costs, however few the pixels
  constexpr int64_t kMostPixels = 1024;
  return types.SeenX().shape[0] <= kMostPixels;
}

std::unique_ptr<Kernel> MakePointwiseConv(const CpuRequest& request) {
  REPLICANT_CHECK(PrefersProduct(request), "{}", request.node.name);
  return std::make_unique<PointwiseConvKernel>(request);
}

}  // namespace replicant::kernels::cpu
