#include <optional>

#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cpu/primitive.h"
#include "core/tensor/host_buffer.h"

// Convolutions by oneDNN. Images are channels last, as everywhere; weights are
// packed into the layout that the primitive likes. Channels last is what its
// kernels for AVX2 and AVX-512 take as gladly as blocks of channels.
namespace replicant::kernels::cpu {
namespace {

using dnnl::memory;
using dnnl::prop_kind;

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

// [B, H, W, C] as oneDNN counts it: b, c, h, w.
memory::desc Image(const Shape& shape) {
  return {{shape[0], shape[3], shape[1], shape[2]},
          memory::data_type::f32,
          memory::format_tag::nhwc};
}

// [O, C, KH, KW] in a layout of the primitive's choice.
memory::desc AnyWeights(const Shape& shape) {
  return {{shape[0], shape[1], shape[2], shape[3]},
          memory::data_type::f32,
          memory::format_tag::any};
}

struct ConvShape {
  ConvShape(const KernelRequest& request, const Shape& x_shape,
            const Shape& w_shape, const Shape& y_shape)
      : x(Image(x_shape)),
        w(AnyWeights(w_shape)),
        y(Image(y_shape)),
        plain_w(RowMajor(w_shape)),
        strides(2, request.node.attributes.Int("stride")),
        before(2, request.node.attributes.Int("padding")) {
    // what the last window leaves out at the far side is negative padding
    const int64_t stride = request.node.attributes.Int("stride");
    const int64_t padding = request.node.attributes.Int("padding");
    for (int axis = 0; axis < 2; ++axis) {
      after.push_back((y_shape[1 + axis] - 1) * stride + w_shape[2 + axis] -
                      x_shape[1 + axis] - padding);
    }
  }

  // The forward primitive, of which the adjoints take their hints.
  dnnl::convolution_forward::primitive_desc Forward() const {
    return {Engine(),   prop_kind::forward_training,
            kAlgorithm, x,
            w,          y,
            strides,    before,
            after,      AttributesOf({})};
  }

  memory::desc x, w, y;
  memory::desc plain_w;
  memory::dims strides, before, after;
};

// Weights as a primitive wants them: made anew at each launch in scratch
// memory, or kept where they seldom change.
class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(const memory::desc& plain, const memory::desc& packed)
      : reorder_(MakeReorder(plain, packed)), size_bytes_(packed.get_size()) {}

  void Keep() {
    if (reorder_.is_valid()) kept_.emplace(size_bytes_);
  }
  void MarkChanged() { is_stale_ = true; }
  // What Bind() needs of `scratch`.
  size_t scratch_size_bytes() const {
    return reorder_.is_valid() && !kept_ ? size_bytes_ : 0;
  }
  // Where the primitive finds the weights.
  const std::byte* Bind(const std::byte* plain, std::byte* scratch) {
    if (!reorder_.is_valid()) return plain;
    std::byte* packed = kept_ ? kept_->data() : scratch;
    reorder_.Bind(DNNL_ARG_FROM, plain);
    reorder_.Bind(DNNL_ARG_TO, packed);
    is_stale_ = true;
    return packed;
  }
  void Pack() {
    if (!reorder_.is_valid() || (kept_ && !is_stale_)) return;
    reorder_.Run();
    is_stale_ = false;
  }

 private:
  Primitive reorder_;
  size_t size_bytes_ = 0;
  std::optional<HostBuffer> kept_;
  bool is_stale_ = true;
};

// A convolution that reads weights, input 1: forward, or the input's gradient.
class WeightedConvKernel : public Kernel {
 public:
  void KeepInput(int input) override {
    if (input == 1) weights_.Keep();
  }
  void InputChanged(int input) override {
    if (input == 1) weights_.MarkChanged();
  }
  size_t scratch_size_bytes() const override {
    ScratchLayout scratch;
    scratch.Add(weights_.scratch_size_bytes());
    scratch.Add(scratchpad_size_);
    return scratch.size_bytes();
  }
  void Launch(Stream& /*stream*/) override {
    weights_.Pack();
    conv_.Run();
  }

 protected:
  void BindWeights(const KernelBindings& bindings) {
    ScratchLayout scratch;
    const size_t packed = scratch.Add(weights_.scratch_size_bytes());
    const size_t scratchpad = scratch.Add(scratchpad_size_);
    conv_.Bind(DNNL_ARG_WEIGHTS,
               weights_.Bind(bindings.inputs[1], bindings.scratch + packed));
    conv_.Bind(DNNL_ARG_SCRATCHPAD, bindings.scratch + scratchpad);
  }

  PackedWeights weights_;
  Primitive conv_;
  size_t scratchpad_size_ = 0;
};

class ConvKernel : public WeightedConvKernel {
 public:
  explicit ConvKernel(const CpuRequest& request)
      : has_bias_(request.node.inputs.size() > 2) {
    const ConvShape s(request, request.input(0).shape, request.input(1).shape,
                      request.output().shape);
    const memory::desc bias =
        has_bias_ ? RowMajor(request.input(2).shape) : memory::desc();
    const dnnl::convolution_forward::primitive_desc description(
        Engine(), prop_kind::forward_inference, kAlgorithm, s.x, s.w, bias, s.y,
        s.strides, s.before, s.after, AttributesOf(request.node.attributes));
    weights_ = PackedWeights(s.plain_w, description.weights_desc());
    scratchpad_size_ = description.scratchpad_desc().get_size();
    std::vector<Primitive::Argument> arguments = {
        {DNNL_ARG_SRC, s.x},
        {DNNL_ARG_WEIGHTS, description.weights_desc()},
        {DNNL_ARG_DST, s.y},
        {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}};
    if (has_bias_) arguments.emplace_back(DNNL_ARG_BIAS, bias);
    conv_ = Primitive(dnnl::convolution_forward(description), arguments);
  }

  void Bind(const KernelBindings& bindings) override {
    BindWeights(bindings);
    conv_.Bind(DNNL_ARG_SRC, bindings.inputs[0]);
    if (has_bias_) conv_.Bind(DNNL_ARG_BIAS, bindings.inputs[2]);
    conv_.Bind(DNNL_ARG_DST, bindings.outputs[0]);
  }

 private:
  bool has_bias_;
};

// inputs: dy, w
class ConvInputGradientKernel : public WeightedConvKernel {
 public:
  explicit ConvInputGradientKernel(const CpuRequest& request) {
    const ConvShape s(request, request.output().shape, request.input(1).shape,
                      request.input(0).shape);
    const dnnl::convolution_backward_data::primitive_desc description(
        Engine(), kAlgorithm, s.x, s.w, s.y, s.strides, s.before, s.after,
        s.Forward(), AttributesOf({}));
    weights_ = PackedWeights(s.plain_w, description.weights_desc());
    scratchpad_size_ = description.scratchpad_desc().get_size();
    conv_ = Primitive(dnnl::convolution_backward_data(description),
                      {{DNNL_ARG_DIFF_DST, s.y},
                       {DNNL_ARG_WEIGHTS, description.weights_desc()},
                       {DNNL_ARG_DIFF_SRC, s.x},
                       {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}});
  }

  void Bind(const KernelBindings& bindings) override {
    BindWeights(bindings);
    conv_.Bind(DNNL_ARG_DIFF_DST, bindings.inputs[0]);
    conv_.Bind(DNNL_ARG_DIFF_SRC, bindings.outputs[0]);
  }
};

// inputs: x, dy
class ConvWeightGradientKernel : public Kernel {
 public:
  explicit ConvWeightGradientKernel(const CpuRequest& request) {
    const ConvShape s(request, request.input(0).shape, request.output().shape,
                      request.input(1).shape);
    const dnnl::convolution_backward_weights::primitive_desc description(
        Engine(), kAlgorithm, s.x, s.w, s.y, s.strides, s.before, s.after,
        s.Forward(), AttributesOf({}));
    const memory::desc packed = description.diff_weights_desc();
    unpack_ = MakeReorder(packed, s.plain_w);
    if (unpack_.is_valid()) packed_ = scratch_.Add(packed.get_size());
    scratchpad_ = scratch_.Add(description.scratchpad_desc().get_size());
    conv_ = Primitive(dnnl::convolution_backward_weights(description),
                      {{DNNL_ARG_SRC, s.x},
                       {DNNL_ARG_DIFF_DST, s.y},
                       {DNNL_ARG_DIFF_WEIGHTS, packed},
                       {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}});
  }

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    conv_.Bind(DNNL_ARG_SRC, bindings.inputs[0]);
    conv_.Bind(DNNL_ARG_DIFF_DST, bindings.inputs[1]);
    conv_.Bind(DNNL_ARG_SCRATCHPAD, bindings.scratch + scratchpad_);
    if (unpack_.is_valid()) {
      conv_.Bind(DNNL_ARG_DIFF_WEIGHTS, bindings.scratch + packed_);
      unpack_.Bind(DNNL_ARG_FROM, bindings.scratch + packed_);
      unpack_.Bind(DNNL_ARG_TO, bindings.outputs[0]);
    } else {
      conv_.Bind(DNNL_ARG_DIFF_WEIGHTS, bindings.outputs[0]);
    }
  }
  void Launch(Stream& /*stream*/) override {
    conv_.Run();
    if (unpack_.is_valid()) unpack_.Run();
  }

 private:
  ScratchLayout scratch_;
  size_t packed_ = 0;
  size_t scratchpad_ = 0;
  Primitive conv_;
  Primitive unpack_;
};

template <typename KernelType>
std::unique_ptr<Kernel> Make(const CpuRequest& request) {
  return std::make_unique<KernelType>(request);
}

}  // namespace

void AddConvKernels(CpuKernelTable& table) {
  table["Conv2d"] = {.make = &Make<ConvKernel>, .why_not = &WhyNotF32};
  table["Conv2dInputGradient"] = {.make = &Make<ConvInputGradientKernel>,
                                  .why_not = &WhyNotF32};
  table["Conv2dWeightGradient"] = {.make = &Make<ConvWeightGradientKernel>,
                                   .why_not = &WhyNotF32};
}

}  // namespace replicant::kernels::cpu
