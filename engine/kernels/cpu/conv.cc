#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "engine/kernels/cpu/cpu_kernels.h"
#include "engine/kernels/cpu/pack_memory.h"
#include "engine/kernels/cpu/primitive.h"
#include "engine/kernels/cpu/product_conv.h"
#include "engine/kernels/cpu/winograd.h"

// Convolutions by oneDNN. Images are channels last, as everywhere: oneDNN's
// kernels for AVX2 and AVX-512 are as fast on them as on blocks of channels.
// Weights are packed into the layout that the primitive prefers.
namespace replicant::kernels::cpu {
namespace {

using dnnl::memory;
using dnnl::prop_kind;

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

// [B, H, W, C] in oneDNN's order of dimensions: b, c, h, w.
memory::desc Image(const graph::TensorType& type) {
  const Shape& shape = type.shape;
  return {{shape[0], shape[3], shape[1], shape[2]},
          ComputeTypeOf(type.dtype),
          memory::format_tag::nhwc};
}

// [O, C, KH, KW] in a layout of the primitive's choice.
memory::desc AnyWeights(const graph::TensorType& type) {
  const Shape& shape = type.shape;
  return {{shape[0], shape[1], shape[2], shape[3]},
          ComputeTypeOf(type.dtype),
          memory::format_tag::any};
}

struct ConvShape {
  ConvShape(const KernelRequest& request, const graph::TensorType& x_type,
            const graph::TensorType& w_type, const graph::TensorType& y_type)
      : x(Image(x_type)),
        w(AnyWeights(w_type)),
        y(Image(y_type)),
        plain_w(RowMajor(w_type.shape, DataTypeOf(w_type.dtype))),
        strides(2, request.node.attributes.Int("stride")),
        before(2, request.node.attributes.Int("padding")) {
    // negative padding at the far side drops what the last window leaves out
    const int64_t stride = request.node.attributes.Int("stride");
    const int64_t padding = request.node.attributes.Int("padding");
    for (int axis = 0; axis < 2; ++axis) {
      after.push_back((y_type.shape[1 + axis] - 1) * stride +
                      w_type.shape[2 + axis] - x_type.shape[1 + axis] -
                      padding);
    }
  }

  // The forward primitive, which the adjoints need as a hint.
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

// Images per call of a primitive: all of them, or, if they are converted, as
// many as keep its operands in the cache.
int64_t ImagesAtATime(const KernelRequest& request, const Shape& x,
                      const Shape& y, int num_threads) {
  constexpr int64_t kCacheFloats = 1 << 20;
  const int64_t batch = x[0];
  const DType dtype = request.input(0).dtype;
  if (batch == 0 || ComputeTypeOf(dtype) == DataTypeOf(dtype)) return batch;
  const int64_t floats =
      std::max<int64_t>(1, (x.num_elements() + y.num_elements()) / batch);
  int64_t images =
      std::min(batch, std::max<int64_t>(kCacheFloats / floats, num_threads));
  while (batch % images != 0) --images;
  return images;
}

// The type of a part of a tensor's images.
graph::TensorType Some(const graph::TensorType& type, int64_t images) {
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims[0] = images;
  return {type.dtype, Shape(std::span<const int64_t>(dims))};
}

// The reorders of a tensor in pieces of about equal size along its first
// dimension. Empty if there is no reorder, or if the layout cannot be cut that
// way.
std::vector<Primitive> ReorderPieces(const memory::desc& from,
                                     const memory::desc& to) {
  if (to.get_format_kind() != memory::format_kind::blocked) return {};
  // where the blocks of the dimension begin
  int64_t block = 1;
  const memory::dims sizes = to.get_inner_blks();
  const memory::dims dimensions = to.get_inner_idxs();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (dimensions[i] == 0) block *= sizes[i];
  }
  memory::dims dims = to.get_dims();
  const int64_t count = dims[0];
  if (count % block != 0) return {};
  const int64_t num_blocks = count / block;
  const int64_t num_pieces = std::min(num_blocks, PackMemory::kPieces);
  if (num_pieces < 2) return {};
  std::vector<Primitive> pieces;
  memory::dims begin(dims.size(), 0);
  for (int64_t i = 1; i <= num_pieces; ++i) {
    const int64_t end = num_blocks * i / num_pieces * block;
    dims[0] = end - begin[0];
    pieces.push_back(MakeReorder(from.submemory_desc(dims, begin),
                                 to.submemory_desc(dims, begin)));
    begin[0] = end;
  }
  return pieces;
}

// Weights, converted and packed for a primitive.
class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(const memory::desc& plain, const memory::desc& packed,
                const InputTraits& traits) {
    Primitive reorder = MakeReorder(plain, packed);
    if (!reorder.is_valid()) return;
    memory_ = PackMemory(packed.get_size());
    // weights that cannot be cut into pieces are not shared
    std::vector<Primitive> pieces;
    if (traits.group != nullptr) pieces = ReorderPieces(plain, packed);
    if (pieces.empty()) {
      memory_.Keep(traits);
      reorders_.push_back(std::move(reorder));
    } else {
      memory_.Apply(traits, LayoutText(packed));
      reorders_ = std::move(pieces);
    }
  }

  void MarkChanged() { memory_.MarkChanged(); }
  // The part of `scratch` that Bind() needs.
  size_t scratch_size_bytes() const { return memory_.scratch_size_bytes(); }
  // The address that the primitive reads.
  const std::byte* Bind(const std::byte* plain, std::byte* scratch) {
    if (reorders_.empty()) return plain;
    std::byte* packed = memory_.Bind(scratch);
    for (Primitive& reorder : reorders_) {
      reorder.Bind(DNNL_ARG_FROM, plain);
      reorder.Bind(DNNL_ARG_TO, packed);
    }
    return packed;
  }
  void Pack() {
    if (reorders_.empty()) return;
    memory_.Refresh(static_cast<int64_t>(reorders_.size()), [&](int64_t piece) {
      reorders_[static_cast<size_t>(piece)].Run();
    });
  }

 private:
  // applied one after the other; empty if the primitive takes the weights as
  // stored
  std::vector<Primitive> reorders_;
  PackMemory memory_;
};

// A convolution that reads images (input 0) and weights (input 1) and makes
// images: forward, or the gradient of the input.
class WeightedConvKernel : public Kernel {
 public:
  explicit WeightedConvKernel(const CpuRequest& request)
      : batch_(request.output().shape[0]),
        images_(ImagesAtATime(request, request.input(0).shape,
                              request.output().shape, request.num_threads)),
        from_(Some(request.input(0), images_), request.num_threads, &scratch_),
        to_(Some(request.output(), images_), request.num_threads, &scratch_) {}

  void InputChanged(int input) override {
    if (input == 1) weights_.MarkChanged();
  }
  size_t scratch_size_bytes() const override {
    ScratchLayout scratch = scratch_;
    scratch.Add(weights_.scratch_size_bytes());
    return scratch.size_bytes();
  }
  void Launch(Stream& /*stream*/) override {
    weights_.Pack();
    for (int64_t part = 0; part * images_ < batch_; ++part) {
      from_.Load(part);
      conv_.Run();
      to_.Store(part);
    }
  }

 protected:
  // `from`, `to`: oneDNN's argument numbers of the images.
  void BindImages(const KernelBindings& bindings, int from, int to) {
    conv_.Bind(from, from_.Bind(bindings.inputs[0], bindings.scratch));
    conv_.Bind(to, to_.Bind(bindings.outputs[0], bindings.scratch));
    // the last part, empty unless every launch packs
    ScratchLayout scratch = scratch_;
    const size_t packed = scratch.Add(weights_.scratch_size_bytes());
    conv_.Bind(DNNL_ARG_WEIGHTS,
               weights_.Bind(bindings.inputs[1], bindings.scratch + packed));
    conv_.Bind(DNNL_ARG_SCRATCHPAD, bindings.scratch + scratchpad_);
  }

  ScratchLayout scratch_;
  int64_t batch_;
  int64_t images_;  // at a time
  ConvertedOperand from_;
  ConvertedOperand to_;
  PackedWeights weights_;
  Primitive conv_;
  size_t scratchpad_ = 0;
};

class ConvKernel : public WeightedConvKernel {
 public:
  explicit ConvKernel(const CpuRequest& request) : WeightedConvKernel(request) {
    const ConvShape s(request, Some(request.input(0), images_),
                      request.input(1), Some(request.output(), images_));
    memory::desc bias;
    if (request.node.inputs.size() > 2) {
      const graph::TensorType& type = request.input(2);
      bias_.emplace(type, request.num_threads, &scratch_);
      bias = RowMajor(type.shape, ComputeTypeOf(type.dtype));
    }
    const dnnl::convolution_forward::primitive_desc description(
        Engine(), prop_kind::forward_inference, kAlgorithm, s.x, s.w, bias, s.y,
        s.strides, s.before, s.after, AttributesOf(request.node.attributes));
    weights_ =
        PackedWeights(s.plain_w, description.weights_desc(), request.traits(1));
    scratchpad_ = scratch_.Add(description.scratchpad_desc().get_size());
    std::vector<Primitive::Argument> arguments = {
        {DNNL_ARG_SRC, s.x},
        {DNNL_ARG_WEIGHTS, description.weights_desc()},
        {DNNL_ARG_DST, s.y},
        {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}};
    if (bias_) arguments.emplace_back(DNNL_ARG_BIAS, bias);
    conv_ = Primitive(dnnl::convolution_forward(description), arguments);
  }

  void Bind(const KernelBindings& bindings) override {
    BindImages(bindings, DNNL_ARG_SRC, DNNL_ARG_DST);
    if (bias_) {
      conv_.Bind(DNNL_ARG_BIAS,
                 bias_->Bind(bindings.inputs[2], bindings.scratch));
    }
  }
  void Launch(Stream& stream) override {
    if (bias_) bias_->Load();
    WeightedConvKernel::Launch(stream);
  }

 private:
  std::optional<ConvertedOperand> bias_;
};

// inputs: dy, w
class ConvInputGradientKernel : public WeightedConvKernel {
 public:
  explicit ConvInputGradientKernel(const CpuRequest& request)
      : WeightedConvKernel(request) {
    const ConvShape s(request, Some(request.output(), images_),
                      request.input(1), Some(request.input(0), images_));
    const dnnl::convolution_backward_data::primitive_desc description(
        Engine(), kAlgorithm, s.x, s.w, s.y, s.strides, s.before, s.after,
        s.Forward(), AttributesOf({}));
    weights_ =
        PackedWeights(s.plain_w, description.weights_desc(), request.traits(1));
    scratchpad_ = scratch_.Add(description.scratchpad_desc().get_size());
    conv_ = Primitive(dnnl::convolution_backward_data(description),
                      {{DNNL_ARG_DIFF_DST, s.y},
                       {DNNL_ARG_WEIGHTS, description.weights_desc()},
                       {DNNL_ARG_DIFF_SRC, s.x},
                       {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}});
  }

  void Bind(const KernelBindings& bindings) override {
    BindImages(bindings, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC);
  }
};

// inputs: x, dy
class ConvWeightGradientKernel : public Kernel {
 public:
  explicit ConvWeightGradientKernel(const CpuRequest& request)
      : num_threads_(request.num_threads),
        batch_(request.input(0).shape[0]),
        images_(ImagesAtATime(request, request.input(0).shape,
                              request.input(1).shape, request.num_threads)),
        x_(Some(request.input(0), images_), num_threads_, &scratch_),
        dy_(Some(request.input(1), images_), num_threads_, &scratch_) {
    const graph::TensorType x = Some(request.input(0), images_);
    const graph::TensorType dy = Some(request.input(1), images_);
    const ConvShape s(request, x, request.output(), dy);
    // the hints are for weights of the images' dtype
    const ConvShape forward(request, x, {x.dtype, request.output().shape}, dy);
    const dnnl::convolution_backward_weights::primitive_desc description(
        Engine(), kAlgorithm, s.x, s.w, s.y, s.strides, s.before, s.after,
        forward.Forward(), AttributesOf({}));
    const memory::desc packed = description.diff_weights_desc();
    unpack_ = MakeReorder(packed, s.plain_w);
    size_ = static_cast<int64_t>(packed.get_size() / sizeof(float));
    if (unpack_.is_valid()) packed_ = scratch_.Add(packed.get_size());
    if (images_ < batch_) sum_ = scratch_.Add(packed.get_size());
    scratchpad_ = scratch_.Add(description.scratchpad_desc().get_size());
    conv_ = Primitive(dnnl::convolution_backward_weights(description),
                      {{DNNL_ARG_SRC, s.x},
                       {DNNL_ARG_DIFF_DST, s.y},
                       {DNNL_ARG_DIFF_WEIGHTS, packed},
                       {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}});
  }

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    conv_.Bind(DNNL_ARG_SRC, x_.Bind(bindings.inputs[0], bindings.scratch));
    conv_.Bind(DNNL_ARG_DIFF_DST,
               dy_.Bind(bindings.inputs[1], bindings.scratch));
    conv_.Bind(DNNL_ARG_SCRATCHPAD, bindings.scratch + scratchpad_);
    std::byte* made =
        unpack_.is_valid() ? bindings.scratch + packed_ : bindings.outputs[0];
    conv_.Bind(DNNL_ARG_DIFF_WEIGHTS, made);
    if (unpack_.is_valid()) {
      unpack_.Bind(DNNL_ARG_FROM, made);
      unpack_.Bind(DNNL_ARG_TO, bindings.outputs[0]);
    }
    part_gradient_ = reinterpret_cast<float*>(made);
    so_far_ = reinterpret_cast<float*>(bindings.scratch + sum_);
  }
  void Launch(Stream& /*stream*/) override {
    for (int64_t part = 0; part * images_ < batch_; ++part) {
      x_.Load(part);
      dy_.Load(part);
      conv_.Run();
      // the sum ends in the place of the last part
      const bool is_last = (part + 1) * images_ >= batch_;
      if (part > 0) AddSoFar(is_last ? part_gradient_ : so_far_);
      if (part == 0 && !is_last) {
        std::copy_n(part_gradient_, size_, so_far_);
      }
    }
    if (unpack_.is_valid()) unpack_.Run();
  }

 private:
  // to = sum so far + this part
  void AddSoFar(float* to) const {
    ParallelFor(ThreadsFor(num_threads_, size_), size_,
                [&](int /*thread*/, int64_t begin, int64_t end) {
#pragma omp simd
                  for (int64_t i = begin; i < end; ++i) {
                    to[i] = so_far_[i] + part_gradient_[i];
                  }
                });
  }

  int num_threads_;
  ScratchLayout scratch_;
  int64_t batch_;
  int64_t images_;  // at a time
  ConvertedOperand x_;
  ConvertedOperand dy_;
  // the primitive's gradient, as floats
  int64_t size_ = 0;
  size_t packed_ = 0;
  size_t sum_ = 0;
  size_t scratchpad_ = 0;
  float* part_gradient_ = nullptr;
  float* so_far_ = nullptr;
  Primitive conv_;
  Primitive unpack_;
};

template <typename KernelType, MakeKernel make_winograd>
std::unique_ptr<Kernel> Make(const CpuRequest& request) {
  if (PrefersProduct(request)) return MakeProductConv(request);
  if (PrefersWinograd(request)) return make_winograd(request);
  return std::make_unique<KernelType>(request);
}

}  // namespace

void AddConvKernels(CpuKernelTable& table) {
  table["Conv2d"] = {.make = &Make<ConvKernel, MakeWinogradConv>,
                     .why_not = &WhyNotF32OrBF16};
  table["Conv2dInputGradient"] = {
      .make = &Make<ConvInputGradientKernel, MakeWinogradInputGradient>,
      .why_not = &WhyNotF32OrBF16};
  table["Conv2dWeightGradient"] = {
      .make = &Make<ConvWeightGradientKernel, MakeWinogradWeightGradient>,
      .why_not = &WhyNotF32OrBF16};
}

}  // namespace replicant::kernels::cpu
