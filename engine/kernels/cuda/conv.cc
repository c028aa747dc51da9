#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/graph/passes/tf32.h"
#include "engine/kernels/cuda/convolution_library.h"
#include "engine/kernels/cuda/cuda_kernels.h"

// Convolutions by the library. It takes weights with channels last: they are
// copied into that order before a product, and a weight gradient out of it.
// Tensors of a problem have one dtype, so that a weight gradient of bf16
// operands is rounded to bf16 before it is stored as f32.
namespace replicant::kernels::cuda {
namespace {

// x [B, H, W, C], w [O, C, KH, KW], y [B, YH, YW, O]
ConvolutionProblem ConvolutionOf(const KernelRequest& request) {
  const graph::Attributes& attributes = request.node.attributes;
  const std::string_view op = request.node.op->name;
  ConvolutionProblem p{
      .stride = attributes.Int("stride"),
      .padding = attributes.Int("padding"),
      .dtype = request.input(0).dtype,
      .allows_tf32 = graph::AllowsTF32(request.node),
      .has_bias = op == "Conv2d" && request.node.inputs.size() > 2,
      .has_relu = attributes.Has("activation")};
  Shape x = request.input(0).shape;
  Shape w = request.input(1).shape;
  Shape y = request.output().shape;
  if (op == "Conv2dInputGradient") {
    p.kind = ConvolutionKind::kInputGradient;
    std::swap(x, y);
  } else if (op == "Conv2dWeightGradient") {
    p.kind = ConvolutionKind::kWeightGradient;
    std::swap(w, y);
  }
  p.b = x[0];
  p.h = x[1];
  p.w = x[2];
  p.c = x[3];
  p.o = w[0];
  p.kh = w[2];
  p.kw = w[3];
  p.yh = y[1];
  p.yw = y[2];
  return p;
}

const char* KindName(ConvolutionKind kind) {
  switch (kind) {
    case ConvolutionKind::kForward:
      return "convolution";
    case ConvolutionKind::kInputGradient:
      return "input gradient";
    case ConvolutionKind::kWeightGradient:
      break;
  }
  return "weight gradient";
}

class ConvolutionStep : public Step {
 public:
  ConvolutionStep(std::unique_ptr<ConvolutionPlan> plan,
                  const ConvolutionProblem& problem, AddressFunction bias,
                  size_t weight_offset, size_t workspace_offset)
      : plan_(std::move(plan)),
        problem_(problem),
        bias_(std::move(bias)),
        weight_offset_(weight_offset),
        workspace_offset_(workspace_offset) {}

  void Bind(const KernelBindings& bindings,
            const OperandRanges& /*ranges*/) override {
    const CUdeviceptr first = AddressOf(bindings.inputs[0]);
    const CUdeviceptr result = AddressOf(bindings.outputs[0]);
    operands_ = {.x = first,
                 .w = AddressOf(bindings.scratch + weight_offset_),
                 .y = result};
    if (problem_.kind == ConvolutionKind::kInputGradient) {
      std::swap(operands_.x, operands_.y);
    } else if (problem_.kind == ConvolutionKind::kWeightGradient) {
      operands_.y = AddressOf(bindings.inputs[1]);
    }
    if (bias_) operands_.bias = bias_(bindings);
    if (plan_->workspace_size_bytes() > 0) {
      operands_.workspace = AddressOf(bindings.scratch + workspace_offset_);
    }
  }
  void Launch(const Device& /*device*/, CUstream stream) override {
    plan_->Launch(operands_, stream);
  }
  LaunchDescription Describe() const override {
    const ConvolutionProblem& p = problem_;
    return {.name = fmt::format("{} {}x{}x{}x{} {}x{}x{}/{}{}{}",
                                KindName(p.kind), p.b, p.h, p.w, p.c, p.o, p.kh,
                                p.kw, p.stride, p.has_bias ? " bias" : "",
                                p.has_relu ? " relu" : ""),
            .flops = 2.0 * static_cast<double>(p.b * p.yh * p.yw) *
                     static_cast<double>(p.o * p.c * p.kh * p.kw),
            .unit = UnitOf(p.dtype, p.allows_tf32)};
  }

 private:
  const std::unique_ptr<ConvolutionPlan> plan_;
  const ConvolutionProblem problem_;
  const AddressFunction bias_;  // null without one
  const size_t weight_offset_;
  const size_t workspace_offset_;
  ConvolutionOperands operands_;
};

DeviceError NoEngine(const KernelBuilder& builder,
                     const ConvolutionProblem& p) {
  return DeviceError(fmt::format(
      "{}: cuDNN has no engine for the {} of images [{},{},{},{}] and weights "
      "[{},{},{},{}], stride {}, padding {}, in {}",
      builder.device().name(), KindName(p.kind), p.b, p.h, p.w, p.c, p.o, p.c,
      p.kh, p.kw, p.stride, p.padding, DTypeName(p.dtype)));
}

void MakeConvolution(KernelBuilder& builder) {
  const ConvolutionProblem problem = ConvolutionOf(builder.request());
  auto plan = builder.plans().Plan(problem);
  if (plan == nullptr) throw NoEngine(builder, problem);
  const int64_t num_weights = problem.o * problem.c * problem.kh * problem.kw;
  const WeightShape shape{.c = problem.c, .p = problem.kh * problem.kw};
  const size_t weight = builder.AddScratch(static_cast<size_t>(num_weights) *
                                           DTypeSize(problem.dtype));
  const size_t workspace = builder.AddWorkspace(plan->workspace_size_bytes());
  auto step = std::make_unique<ConvolutionStep>(
      std::move(plan), problem, problem.has_bias ? AddBias(builder) : nullptr,
      weight, workspace);
  if (problem.kind == ConvolutionKind::kWeightGradient) {
    builder.Add(std::move(step));
    DispatchFloat(problem.dtype, builder.output().dtype,
                  [&]<typename T, typename Result>() {
                    using Body = FromChannelsLast<T, Result>;
                    builder.Launch(
                        Body{.shape = shape}, num_weights,
                        [weight](Body& b, const KernelBindings& bindings) {
                          b.x = Scratch<T>(bindings, weight);
                          b.y = Out<Result>(bindings);
                        });
                  });
    return;
  }
  DispatchFloat(problem.dtype, [&]<typename T>() {
    using Body = ToChannelsLast<T>;
    builder.Launch(Body{.shape = shape}, num_weights,
                   [weight](Body& b, const KernelBindings& bindings) {
                     b.x = In<T>(bindings, 1);
                     b.y = Scratch<T>(bindings, weight);
                   });
  });
  builder.Add(std::move(step));
}

std::string WhyNotConvolution(const KernelRequest& request) {
  if (std::string why = WhyNotF32OrBF16(request); !why.empty()) return why;
  for (const graph::TensorType& type :
       {request.input(0), request.input(1), request.output()}) {
    if (type.shape.num_elements() == 0) {
      return "it takes only tensors with elements, got " + type.ToString();
    }
  }
  const ConvolutionProblem problem = ConvolutionOf(request);
  if (problem.kind != ConvolutionKind::kWeightGradient &&
      request.output().dtype != problem.dtype) {
    return "it takes operands of the result's dtype, got " +
           request.input(0).ToString();
  }
  return problem.has_bias ? WhyNotBias(request) : "";
}

}  // namespace

void AddConvKernels(CudaKernelTable& table) {
  for (const char* op :
       {"Conv2d", "Conv2dInputGradient", "Conv2dWeightGradient"}) {
    table[op] = {&MakeConvolution, &WhyNotConvolution};
  }
}

}  // namespace replicant::kernels::cuda
