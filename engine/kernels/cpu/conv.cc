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

// Images per call of a primitive: at most `most`, and, if the operands are
// converted, no more than stay in the cache. A divisor of `count`.
int64_t ImagesAtATime(const KernelRequest& request, const Shape& x,
                      const Shape& y, int64_t count, int64_t most) {
  constexpr int64_t kCacheFloats = 1 << 20;
  const int64_t batch = x[0];
  if (batch == 0) return 1;
  int64_t images = std::max<int64_t>(1, most);
  const DType dtype = request.input(0).dtype;
  if (ComputeTypeOf(dtype) != DataTypeOf(dtype)) {
    const int64_t floats =
        std::max<int64_t>(1, (x.num_elements() + y.num_elements()) / batch);
    images = std::min(images, std::max<int64_t>(1, kCacheFloats / floats));
  }
  while (count % images != 0) --images;
  return images;
}

// The type of a part of a tensor's images.
graph::TensorType Some(const graph::TensorType& type, int64_t images) {
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims[0] = images;
  return {type.dtype, Shape(std::span<const int64_t>(dims))};
}

// Weights, converted and packed for a primitive.
class PackedWeights {
 public:
  PackedWeights() = default;
  PackedWeights(const memory::desc& plain, const memory::desc& packed,
                const InputTraits& traits, int num_threads)
      : num_threads_(num_threads),
        reorder_(plain, packed,
                 traits.group != nullptr
                     ? PackMemory::kPieces
                     : ReorderPieces(packed.get_size(), num_threads)) {
    if (!reorder_.is_valid()) return;
    memory_ = PackMemory(packed.get_size());
    // weights that cannot be cut into pieces are not shared
    if (reorder_.num_pieces() == 1) {
      memory_.Keep(traits);
    } else {
      memory_.Apply(traits, LayoutText(packed));
    }
  }

  void MarkChanged() { memory_.MarkChanged(); }
  // The part of `scratch` that Bind() needs.
  size_t scratch_size_bytes() const { return memory_.scratch_size_bytes(); }
  // The address that the primitive reads.
  const std::byte* Bind(const std::byte* plain, std::byte* scratch) {
    if (!reorder_.is_valid()) return plain;
    std::byte* packed = memory_.Bind(scratch);
    reorder_.Bind(plain, packed);
    return packed;
  }
  void Pack() {
    if (!reorder_.is_valid()) return;
    if (memory_.is_shared()) {
      memory_.Refresh(reorder_.num_pieces(),
                      [&](int64_t piece) { reorder_.RunPiece(piece); });
    } else {
      memory_.Refresh(1,
                      [&](int64_t /*piece*/) { reorder_.Run(num_threads_); });
    }
  }

 private:
  int num_threads_ = 1;
  Reorder reorder_;  // not valid if the primitive takes the weights as stored
  PackMemory memory_;
};

// Threads of a convolution that makes images `y`, or reads them as gradients.
int ThreadsOf(const CpuRequest& request, const Shape& y, const Shape& w) {
  const int64_t products =
      y.num_elements() * w.num_elements() / std::max<int64_t>(1, w[0]);
  return ThreadsFor(request.num_threads, products / 8);
}

// A convolution that reads images (input 0) and weights (input 1) and makes
// images: forward, or the gradient of the input.
class WeightedConvKernel : public Kernel {
 public:
  // `y`: the images at the end of the forward convolution.
  WeightedConvKernel(const CpuRequest& request, const Shape& y)
      : num_threads_(ThreadsOf(request, y, request.input(1).shape)),
        batch_(request.output().shape[0]),
        images_(ImagesAtATime(
            request, request.input(0).shape, request.output().shape, batch_,
            batch_ /
                (num_threads_ == 1 ? 1 : kPartsPerThread * num_threads_))) {}

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
    ParallelForEach(num_threads_, batch_ / images_,
                    [&](int thread, int64_t part) {
                      Lane& lane = lanes_[static_cast<size_t>(thread)];
                      lane.from.Load(part);
                      lane.conv.Bind(from_, lane.from.At(part));
                      lane.conv.Bind(to_, lane.to.At(part));
                      lane.conv.Run();
                      lane.to.Store(part);
                    });
  }

 protected:
  // What a thread needs for some images.
  struct Lane {
    ConvertedOperand from, to;
    Primitive conv;
    size_t scratchpad = 0;
  };

  // The images of a call: of input 0, or of the result.
  graph::TensorType Part(const graph::TensorType& type) const {
    return Some(type, images_);
  }
  // `from`, `to`: oneDNN's argument numbers of the images.
  void AddLanes(const CpuRequest& request, const dnnl::primitive& conv,
                const std::vector<Primitive::Argument>& arguments, int from,
                int to, size_t scratchpad_size_bytes) {
    from_ = from;
    to_ = to;
    for (int thread = 0; thread < num_threads_; ++thread) {
      Lane& lane = lanes_.emplace_back(
          Lane{.from = {Part(request.input(0)), /*num_threads=*/1, &scratch_},
               .to = {Part(request.output()), /*num_threads=*/1, &scratch_},
               .conv = {conv, arguments}});
      lane.scratchpad = scratch_.Add(scratchpad_size_bytes);
    }
  }
  void BindImages(const KernelBindings& bindings) {
    // the last part, empty unless every launch packs
    ScratchLayout scratch = scratch_;
    const size_t packed = scratch.Add(weights_.scratch_size_bytes());
    const std::byte* weights =
        weights_.Bind(bindings.inputs[1], bindings.scratch + packed);
    for (Lane& lane : lanes_) {
      lane.from.Bind(bindings.inputs[0], bindings.scratch);
      lane.to.Bind(bindings.outputs[0], bindings.scratch);
      lane.conv.Bind(DNNL_ARG_WEIGHTS, weights);
      lane.conv.Bind(DNNL_ARG_SCRATCHPAD, bindings.scratch + lane.scratchpad);
    }
  }

  int num_threads_;
  int64_t batch_;
  int64_t images_;  // at a time
  ScratchLayout scratch_;
  PackedWeights weights_;
  std::vector<Lane> lanes_;
  int from_ = 0;
  int to_ = 0;
};

class ConvKernel : public WeightedConvKernel {
 public:
  explicit ConvKernel(const CpuRequest& request)
      : WeightedConvKernel(request, request.output().shape) {
    const ConvShape s(request, Part(request.input(0)), request.input(1),
                      Part(request.output()));
    memory::desc bias;
    if (request.node.inputs.size() > 2) {
      const graph::TensorType& type = request.input(2);
      bias_.emplace(type, request.num_threads, &scratch_);
      bias = RowMajor(type.shape, ComputeTypeOf(type.dtype));
    }
    const dnnl::convolution_forward::primitive_desc description(
        Engine(), prop_kind::forward_inference, kAlgorithm, s.x, s.w, bias, s.y,
        s.strides, s.before, s.after, AttributesOf(request.node.attributes));
    weights_ = PackedWeights(s.plain_w, description.weights_desc(),
                             request.traits(1), num_threads_);
    std::vector<Primitive::Argument> arguments = {
        {DNNL_ARG_SRC, s.x},
        {DNNL_ARG_WEIGHTS, description.weights_desc()},
        {DNNL_ARG_DST, s.y},
        {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}};
    if (bias_) arguments.emplace_back(DNNL_ARG_BIAS, bias);
    AddLanes(request, dnnl::convolution_forward(description), arguments,
             DNNL_ARG_SRC, DNNL_ARG_DST,
             description.scratchpad_desc().get_size());
  }

  void Bind(const KernelBindings& bindings) override {
    BindImages(bindings);
    if (!bias_) return;
    const std::byte* bias = bias_->Bind(bindings.inputs[2], bindings.scratch);
    for (Lane& lane : lanes_) lane.conv.Bind(DNNL_ARG_BIAS, bias);
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
      : WeightedConvKernel(request, request.input(0).shape) {
    const ConvShape s(request, Part(request.output()), request.input(1),
                      Part(request.input(0)));
    const dnnl::convolution_backward_data::primitive_desc description(
        Engine(), kAlgorithm, s.x, s.w, s.y, s.strides, s.before, s.after,
        s.Forward(), AttributesOf({}));
    weights_ = PackedWeights(s.plain_w, description.weights_desc(),
                             request.traits(1), num_threads_);
    AddLanes(request, dnnl::convolution_backward_data(description),
             {{DNNL_ARG_DIFF_DST, s.y},
              {DNNL_ARG_WEIGHTS, description.weights_desc()},
              {DNNL_ARG_DIFF_SRC, s.x},
              {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}},
             DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_SRC,
             description.scratchpad_desc().get_size());
  }

  void Bind(const KernelBindings& bindings) override { BindImages(bindings); }
};

// inputs: x, dy
class ConvWeightGradientKernel : public Kernel {
 public:
  explicit ConvWeightGradientKernel(const CpuRequest& request)
      : num_threads_(
            ThreadsOf(request, request.input(1).shape, request.output().shape)),
        batch_(request.input(0).shape[0]),
        num_sums_(NumSums(batch_, request.output().shape.num_elements(),
                          num_threads_)),
        images_(ImagesAtATime(request, request.input(0).shape,
                              request.input(1).shape, batch_ / num_sums_,
                              batch_ / num_sums_)) {
    const graph::TensorType x = Some(request.input(0), images_);
    const graph::TensorType dy = Some(request.input(1), images_);
    // sums are floats; the hints are for weights of the images' dtype
    const ConvShape s(request, x, {DType::kF32, request.output().shape}, dy);
    const ConvShape forward(request, x, {x.dtype, request.output().shape}, dy);
    const dnnl::convolution_backward_weights::primitive_desc description(
        Engine(), kAlgorithm, s.x, s.w, s.y, s.strides, s.before, s.after,
        forward.Forward(), AttributesOf({}));
    const memory::desc packed = description.diff_weights_desc();
    unpack_ = Reorder(
        packed,
        RowMajor(request.output().shape, DataTypeOf(request.output().dtype)),
        ReorderPieces(packed.get_size(), num_threads_));
    size_ = static_cast<int64_t>(packed.get_size() / sizeof(float));
    // the first one is the result, if that has its layout
    sums_ = scratch_.Add(static_cast<size_t>(num_sums_) * packed.get_size());
    const dnnl::convolution_backward_weights conv(description);
    const std::vector<Primitive::Argument> arguments = {
        {DNNL_ARG_SRC, s.x},
        {DNNL_ARG_DIFF_DST, s.y},
        {DNNL_ARG_DIFF_WEIGHTS, packed},
        {DNNL_ARG_SCRATCHPAD, description.scratchpad_desc()}};
    for (int thread = 0; thread < num_threads_; ++thread) {
      Lane& lane =
          lanes_.emplace_back(Lane{.x = {x, /*num_threads=*/1, &scratch_},
                                   .dy = {dy, /*num_threads=*/1, &scratch_},
                                   .conv = {conv, arguments}});
      lane.scratchpad = scratch_.Add(description.scratchpad_desc().get_size());
      if (num_calls() > 1) lane.gradient = scratch_.Add(packed.get_size());
    }
  }

  size_t scratch_size_bytes() const override { return scratch_.size_bytes(); }
  void Bind(const KernelBindings& bindings) override {
    bindings_ = bindings;
    for (Lane& lane : lanes_) {
      lane.x.Bind(bindings.inputs[0], bindings.scratch);
      lane.dy.Bind(bindings.inputs[1], bindings.scratch);
      lane.conv.Bind(DNNL_ARG_SCRATCHPAD, bindings.scratch + lane.scratchpad);
    }
    if (unpack_.is_valid()) {
      unpack_.Bind(bindings.scratch + sums_, bindings.outputs[0]);
    }
  }
  void Launch(Stream& /*stream*/) override {
    ParallelForEach(num_threads_, num_sums_,
                    [&](int thread, int64_t sum) { AddUp(thread, sum); });
    if (num_sums_ > 1) {
      ParallelFor(ThreadsFor(num_threads_, size_ * num_sums_), size_,
                  [&](int /*thread*/, int64_t begin, int64_t end) {
                    for (int64_t sum = 1; sum < num_sums_; ++sum) {
                      Add(Sum(sum), begin, end, Sum(0));
                    }
                  });
    }
    if (unpack_.is_valid()) unpack_.Run(num_threads_);
  }

 private:
  struct Lane {
    ConvertedOperand x, dy;
    Primitive conv;
    size_t scratchpad = 0;
    size_t gradient = 0;  // of a call, if a sum has several
  };

  // The batch is added up in so many parts, and the parts in order, so that the
  // result does not depend on which thread takes one. Few for large weights,
  // whose sums would not stay in the cache.
  static int64_t NumSums(int64_t batch, int64_t num_weights, int num_threads) {
    constexpr int64_t kCacheFloats = 1 << 20;
    if (num_threads == 1) return 1;
    int64_t sums =
        std::clamp<int64_t>(kCacheFloats / std::max<int64_t>(1, num_weights),
                            num_threads, kPartsPerThread * num_threads);
    while (batch % sums != 0) --sums;
    return sums;
  }
  int64_t num_calls() const { return batch_ / num_sums_ / images_; }

  float* Sum(int64_t sum) const {
    if (sum == 0 && !unpack_.is_valid()) {
      return reinterpret_cast<float*>(bindings_.outputs[0]);
    }
    return reinterpret_cast<float*>(bindings_.scratch + sums_) + sum * size_;
  }

  static void Add(const float* more, int64_t begin, int64_t end, float* sum) {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) sum[i] += more[i];
  }

  void AddUp(int thread, int64_t sum) {
    Lane& lane = lanes_[static_cast<size_t>(thread)];
    auto* more = reinterpret_cast<float*>(bindings_.scratch + lane.gradient);
    if (batch_ == 0) std::fill_n(Sum(sum), size_, 0.0f);
    for (int64_t call = 0; call < num_calls(); ++call) {
      const int64_t part = sum * num_calls() + call;
      lane.x.Load(part);
      lane.dy.Load(part);
      lane.conv.Bind(DNNL_ARG_SRC, lane.x.At(part));
      lane.conv.Bind(DNNL_ARG_DIFF_DST, lane.dy.At(part));
      lane.conv.Bind(DNNL_ARG_DIFF_WEIGHTS,
                     reinterpret_cast<std::byte*>(call == 0 ? Sum(sum) : more));
      lane.conv.Run();
      if (call > 0) Add(more, 0, size_, Sum(sum));
    }
  }

  int num_threads_;
  int64_t batch_;
  int64_t num_sums_;
  int64_t images_;  // at a time
  ScratchLayout scratch_;
  size_t sums_ = 0;   // offset
  int64_t size_ = 0;  // of a sum
  std::vector<Lane> lanes_;
  Reorder unpack_;
  KernelBindings bindings_;
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
