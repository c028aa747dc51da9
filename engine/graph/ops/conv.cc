#include "engine/graph/ops/conv.h"

#include <fmt/format.h>

#include "base/check.h"

namespace replicant::graph {
namespace {

// Returns the shape of y. Fails if x, w and the options do not fit together.
Shape OutputShape(const InferContext& context, const Shape& x, const Shape& w) {
  const int64_t stride = context.attributes.Int("stride");
  const int64_t padding = context.attributes.Int("padding");
  if (stride < 1 || padding < 0) {
    context.Fail(fmt::format("want stride >= 1 and padding >= 0, got {} and {}",
                             stride, padding));
  }
  if (x.rank() != 4 || w.rank() != 4 || x[3] != w[1]) {
    context.Fail(fmt::format(
        "want x [B,H,W,C] and w [O,C,KH,KW] of one C, got {} and {}",
        x.ToString(), w.ToString()));
  }
  const int64_t room_h = x[1] + 2 * padding - w[2];
  const int64_t room_w = x[2] + 2 * padding - w[3];
  if (room_h < 0 || room_w < 0) {
    context.Fail(
        fmt::format("the kernel of w {} is larger than x {} with padding {}",
                    w.ToString(), x.ToString(), padding));
  }
  return Shape({x[0], room_h / stride + 1, room_w / stride + 1, w[0]});
}

void CheckDTypes(const InferContext& context) {
  if (IsFloating(context.dtype(0)) && context.dtype(0) == context.dtype(1)) {
    return;
  }
  context.Fail(fmt::format("want one floating dtype, got {} and {}",
                           context.inputs[0].ToString(),
                           context.inputs[1].ToString()));
}

std::vector<TensorType> InferConv(const InferContext& context) {
  CheckDTypes(context);
  const Shape shape = OutputShape(context, context.shape(0), context.shape(1));
  if (context.num_inputs() == 3) {
    REPLICANT_CHECK(context.shape(2) == Shape({shape[3]}),
                    "bias {} for {} channels", context.shape(2).ToString(),
                    shape[3]);
  }
  return {{context.dtype(0), shape}};
}

Shape WantedShape(const InferContext& context) {
  return Shape(std::span(context.attributes.Ints("shape")));
}

std::vector<TensorType> InferInputGradient(const InferContext& context) {
  CheckDTypes(context);
  const Shape x = WantedShape(context);
  REPLICANT_CHECK(OutputShape(context, x, context.shape(1)) == context.shape(0),
                  "dy {} does not fit", context.shape(0).ToString());
  return {{context.dtype(0), x}};
}

std::vector<TensorType> InferWeightGradient(const InferContext& context) {
  CheckDTypes(context);
  const Shape w = WantedShape(context);
  REPLICANT_CHECK(OutputShape(context, context.shape(0), w) == context.shape(1),
                  "dy {} does not fit", context.shape(1).ToString());
  return {{context.ResultDType(), w}};
}

// Only passes add these ops, and Conv2d has checked the shapes before.
void CheckPixels(const InferContext& context) {
  const Shape& x = context.shape(0);
  REPLICANT_CHECK(
      context.dtype(0) == DType::kU8 && IsFloating(context.dtype(1)),
      "pixels {} and {}", DTypeName(context.dtype(0)),
      DTypeName(context.dtype(1)));
  if (!context.attributes.Has("is_shifted")) return;
  const TensorType offsets{DType::kI32, Shape({x[0], 2})};
  REPLICANT_CHECK(context.inputs.back() == offsets, "offsets {}",
                  context.inputs.back().ToString());
}

std::vector<TensorType> InferPixelConv(const InferContext& context) {
  CheckPixels(context);
  return {{context.dtype(1),
           OutputShape(context, context.shape(0), context.shape(1))}};
}

std::vector<TensorType> InferPixelWeightGradient(const InferContext& context) {
  CheckPixels(context);
  const bool has_f32_result = context.attributes.Has("f32_result");
  return {
      {has_f32_result ? DType::kF32 : context.dtype(1), WantedShape(context)}};
}

std::vector<Output> ConvGradient(const GradientContext& context) {
  const Output& x = context.input(0);
  const Output& w = context.input(1);
  const Output& dy = context.output_gradient();
  const Conv2dOptions options{
      .stride = context.node.attributes.Int("stride"),
      .padding = context.node.attributes.Int("padding")};
  return {Conv2dInputGradient(dy, w, x.shape(), options),
          Conv2dWeightGradient(x, dy, w.shape(), options)};
}

Attributes AttributesOf(const Conv2dOptions& options) {
  return {{"stride", options.stride}, {"padding", options.padding}};
}

Output AddAdjoint(const OpDef& op, const Output& a, const Output& b,
                  const Shape& shape, const Conv2dOptions& options) {
  Attributes attributes = AttributesOf(options);
  attributes.Set(
      "shape", std::vector<int64_t>(shape.dims().begin(), shape.dims().end()));
  return a.graph->Add(
      {.op = &op, .inputs = {a, b}, .attributes = std::move(attributes)});
}

}  // namespace

Output Conv2d(Output x, Output w, const Conv2dOptions& options, CallSite site) {
  static const OpDef op{
      .name = "Conv2d", .infer = &InferConv, .gradient = &ConvGradient};
  return x.graph->Add(
      {.op = &op, .inputs = {x, w}, .attributes = AttributesOf(options)}, site);
}

Output Conv2dInputGradient(Output dy, Output w, const Shape& x_shape,
                           const Conv2dOptions& options) {
  static const OpDef op{
      .name = "Conv2dInputGradient",
      .infer = &InferInputGradient,
      .no_gradient_reason = "there is no second derivative of Conv2d"};
  return AddAdjoint(op, dy, w, x_shape, options);
}

Output Conv2dWeightGradient(Output x, Output dy, const Shape& w_shape,
                            const Conv2dOptions& options) {
  static const OpDef op{
      .name = "Conv2dWeightGradient",
      .infer = &InferWeightGradient,
      .no_gradient_reason = "there is no second derivative of Conv2d"};
  return AddAdjoint(op, x, dy, w_shape, options);
}

const OpDef& PixelConv2dOp() {
  static const OpDef op{
      .name = "PixelConv2d",
      .infer = &InferPixelConv,
      .no_gradient_reason = "only a pass adds it, after Gradients()"};
  return op;
}

const OpDef& PixelConv2dWeightGradientOp() {
  static const OpDef op{
      .name = "PixelConv2dWeightGradient",
      .infer = &InferPixelWeightGradient,
      .no_gradient_reason = "only a pass adds it, after Gradients()"};
  return op;
}

}  // namespace replicant::graph
