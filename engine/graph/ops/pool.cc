#include "engine/graph/ops/pool.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::graph {
namespace {

constexpr std::string_view kNoSecondDerivative =
    "there is no second derivative of pooling";

void CheckImage(const InferContext& context) {
  if (context.shape(0).rank() == 4 && IsFloating(context.dtype(0))) return;
  context.Fail(fmt::format("want floating images [B,H,W,C], got {}",
                           context.inputs[0].ToString()));
}

std::vector<TensorType> InferPool(const InferContext& context) {
  CheckImage(context);
  const int64_t window = context.attributes.Int("window");
  const int64_t stride = context.attributes.Int("stride");
  const int64_t padding = context.attributes.Int("padding");
  if (window < 1 || stride < 1 || padding < 0 || padding >= window) {
    context.Fail(fmt::format(
        "want window >= 1, stride >= 1 and 0 <= padding < window, got {}, {} "
        "and {}",
        window, stride, padding));
  }
  const Shape& x = context.shape(0);
  if (std::min(x[1], x[2]) + 2 * padding < window) {
    context.Fail(fmt::format("a window of {} does not fit {} with padding {}",
                             window, context.inputs[0].ToString(), padding));
  }
  return {{context.dtype(0),
           PooledShape(
               x, {.window = window, .stride = stride, .padding = padding})}};
}

// inputs: x or places, dy
std::vector<TensorType> InferPoolGradient(const InferContext& context) {
  if (context.attributes.Has("image")) {
    return {{context.dtype(1), Shape(context.attributes.Ints("image"))}};
  }
  return {context.inputs[0]};
}

std::vector<TensorType> InferUpsample(const InferContext& context) {
  CheckImage(context);
  const int64_t scale = context.attributes.Int("scale");
  if (scale < 1) context.Fail(fmt::format("want scale >= 1, got {}", scale));
  const Shape& x = context.shape(0);
  return {{context.dtype(0), Shape({x[0], x[1] * scale, x[2] * scale, x[3]})}};
}

std::vector<Output> MaxPoolGradient(const GradientContext& context) {
  static const OpDef op{.name = "MaxPool2dGradient",
                        .infer = &InferPoolGradient,
                        .no_gradient_reason = kNoSecondDerivative};
  const Output& x = context.input(0);
  return {x.graph->Add({.op = &op,
                        .inputs = {x, context.output_gradient()},
                        .attributes = context.node.attributes})};
}

std::vector<Output> AveragePoolGradient(const GradientContext& context) {
  static const OpDef op{.name = "AveragePool2dGradient",
                        .infer = &InferPoolGradient,
                        .no_gradient_reason = kNoSecondDerivative};
  const Output& x = context.input(0);
  return {x.graph->Add({.op = &op,
                        .inputs = {x, context.output_gradient()},
                        .attributes = context.node.attributes})};
}

// Sums dy over the copies of each pixel: average times number of copies.
std::vector<Output> UpsampleGradient(const GradientContext& context) {
  const int64_t scale = context.node.attributes.Int("scale");
  const Output mean = AveragePool2d(context.output_gradient(),
                                    {.window = scale, .stride = scale});
  return {Mul(mean, static_cast<double>(scale * scale))};
}

Output AddPool(const OpDef& op, const Output& x, const PoolOptions& options,
               CallSite site) {
  return x.graph->Add({.op = &op,
                       .inputs = {x},
                       .attributes = {{"window", options.window},
                                      {"stride", options.stride},
                                      {"padding", options.padding}}},
                      site);
}

}  // namespace

Shape PooledShape(const Shape& image, const PoolOptions& options) {
  const auto size = [&](int64_t length) {
    return (length + 2 * options.padding - options.window) / options.stride + 1;
  };
  return Shape({image[0], size(image[1]), size(image[2]), image[3]});
}

Output MaxPool2d(Output x, const PoolOptions& options, CallSite site) {
  static const OpDef op{
      .name = "MaxPool2d", .infer = &InferPool, .gradient = &MaxPoolGradient};
  return AddPool(op, x, options, site);
}

Output AveragePool2d(Output x, const PoolOptions& options, CallSite site) {
  static const OpDef op{.name = "AveragePool2d",
                        .infer = &InferPool,
                        .gradient = &AveragePoolGradient};
  return AddPool(op, x, options, site);
}

Output GlobalAveragePool(Output x, CallSite site) {
  const Graph::SiteScope scope(x, site);
  if (x.shape().rank() != 4) {
    // AveragePool2d reports the wrong rank
    return AveragePool2d(x);
  }
  return ReduceMean(x, {.axes = {1, 2}});
}

Output UpsampleNearest2d(Output x, int64_t scale, CallSite site) {
  static const OpDef op{.name = "UpsampleNearest2d",
                        .infer = &InferUpsample,
                        .gradient = &UpsampleGradient};
  return x.graph->Add(
      {.op = &op, .inputs = {x}, .attributes = {{"scale", scale}}}, site);
}

}  // namespace replicant::graph
