#include "engine/graph/ops/reduce.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::graph {
namespace {

// Returns "axes" as kernels get them: ascending in [0, rank), each once.
std::vector<int64_t> NormalizeAxes(const InferContext& context) {
  const int64_t rank = context.shape(0).rank();
  std::vector<int64_t> axes = context.attributes.Ints("axes");
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) {
      context.Fail(fmt::format("axis {} is outside [{}, {}) of {}", axis, -rank,
                               rank, context.inputs[0].ToString()));
    }
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    context.Fail(fmt::format("axes [{}] name an axis twice",
                             fmt::join(context.attributes.Ints("axes"), ",")));
  }
  return axes;
}

Shape ReducedShape(const Shape& shape, const std::vector<int64_t>& axes,
                   bool keep_dims) {
  std::vector<int64_t> dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool is_reduced =
        std::find(axes.begin(), axes.end(), axis) != axes.end();
    if (!is_reduced) {
      dims.push_back(shape[axis]);
    } else if (keep_dims) {
      dims.push_back(1);
    }
  }
  return Shape(std::span<const int64_t>(dims));
}

std::vector<TensorType> InferReduced(const InferContext& context) {
  const std::vector<int64_t> axes = NormalizeAxes(context);
  return {{context.ResultDType(),
           ReducedShape(context.shape(0), axes,
                        context.attributes.Bool("keep_dims"))}};
}

std::vector<TensorType> InferSum(const InferContext& context) {
  if (context.dtype(0) == DType::kBool) {
    context.Fail(fmt::format("want a numeric dtype (any but bool), got {}",
                             context.inputs[0].ToString()));
  }
  return InferReduced(context);
}

std::vector<TensorType> InferMean(const InferContext& context) {
  if (!IsFloating(context.dtype(0))) {
    context.Fail(fmt::format("want a floating dtype (f32, f64, bf16), got {}",
                             context.inputs[0].ToString()));
  }
  return InferReduced(context);
}

std::vector<TensorType> InferExtremum(const InferContext& context) {
  for (const int64_t axis : NormalizeAxes(context)) {
    if (context.shape(0)[static_cast<int>(axis)] == 0) {
      context.Fail(fmt::format("axis {} of {} is empty and has no extremum",
                               axis, context.inputs[0].ToString()));
    }
  }
  return InferSum(context);
}

std::vector<TensorType> InferArgMax(const InferContext& context) {
  const Shape& shape = context.shape(0);
  if (shape.rank() == 0 || shape[shape.rank() - 1] == 0) {
    context.Fail(fmt::format("want a last axis of at least one element, got {}",
                             context.inputs[0].ToString()));
  }
  return {{DType::kI64, ReducedShape(shape, {shape.rank() - 1}, false)}};
}

// Returns the shape of the result with size 1 in reduced axes, which broadcasts
// against the input.
Shape KeptShape(const GradientContext& context) {
  return ReducedShape(context.input(0).shape(),
                      context.node.attributes.Ints("axes"), true);
}

std::vector<Output> SumGradient(const GradientContext& context) {
  const Output dy = ReshapeTo(context.output_gradient(), KeptShape(context));
  return {BroadcastTo(dy, context.input(0).shape())};
}

std::vector<Output> MeanGradient(const GradientContext& context) {
  const auto count =
      static_cast<double>(context.input(0).shape().num_elements()) /
      static_cast<double>(
          std::max<int64_t>(1, context.output().shape().num_elements()));
  const Output dy = Mul(context.output_gradient(), 1.0 / count);
  return {
      BroadcastTo(ReshapeTo(dy, KeptShape(context)), context.input(0).shape())};
}

// dx = dy / (number of elements equal to the extremum) on those elements
std::vector<Output> ExtremumGradient(const GradientContext& context) {
  const Output& x = context.input(0);
  const Shape kept = KeptShape(context);
  const Output y = ReshapeTo(context.output(), kept);
  const Output dy = ReshapeTo(context.output_gradient(), kept);
  const Output is_extremum = Cast(Equal(x, y), x.dtype());
  const Output count = ReduceSum(
      is_extremum,
      {.axes = context.node.attributes.Ints("axes"), .keep_dims = true});
  return {Mul(is_extremum, Div(dy, count))};
}

Output AddReduction(const OpDef& op, const Output& x,
                    const ReduceOptions& options, CallSite site) {
  // kernels and gradients get ascending, non-negative axes; the infer function
  // reports wrong ones
  const int64_t rank = x.shape().rank();
  std::vector<int64_t> axes = options.axes;
  if (axes.empty()) {
    for (int64_t axis = 0; axis < rank; ++axis) axes.push_back(axis);
  }
  for (int64_t& axis : axes) {
    if (axis < 0 && axis >= -rank) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  return x.graph->Add(
      {.op = &op,
       .inputs = {x},
       .attributes = {{"axes", axes}, {"keep_dims", options.keep_dims}}},
      site);
}

}  // namespace

Output ReduceSum(Output x, const ReduceOptions& options, CallSite site) {
  static const OpDef op{
      .name = "ReduceSum", .infer = &InferSum, .gradient = &SumGradient};
  return AddReduction(op, x, options, site);
}

Output ReduceMean(Output x, const ReduceOptions& options, CallSite site) {
  static const OpDef op{
      .name = "ReduceMean", .infer = &InferMean, .gradient = &MeanGradient};
  return AddReduction(op, x, options, site);
}

Output ReduceMax(Output x, const ReduceOptions& options, CallSite site) {
  static const OpDef op{.name = "ReduceMax",
                        .infer = &InferExtremum,
                        .gradient = &ExtremumGradient};
  return AddReduction(op, x, options, site);
}

Output ReduceMin(Output x, const ReduceOptions& options, CallSite site) {
  static const OpDef op{.name = "ReduceMin",
                        .infer = &InferExtremum,
                        .gradient = &ExtremumGradient};
  return AddReduction(op, x, options, site);
}

Output SumTo(Output x, const Shape& shape, CallSite site) {
  const Graph::SiteScope scope(x, site);
  if (x.shape() == shape) return x;
  REPLICANT_CHECK(BroadcastShapes(shape, x.shape()) == x.shape(),
                  "SumTo: {} does not broadcast to {}", shape.ToString(),
                  x.shape().ToString());
  std::vector<int64_t> axes;
  const int missing = x.shape().rank() - shape.rank();
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    if (axis < missing || shape[axis - missing] != x.shape()[axis]) {
      axes.push_back(axis);
    }
  }
  // without axes to sum, a reshape is enough
  const Output sum =
      axes.empty() ? x : ReduceSum(x, {.axes = axes, .keep_dims = true});
  return ReshapeTo(sum, shape);
}

Output ArgMax(Output x, CallSite site) {
  static const OpDef op{.name = "ArgMax",
                        .infer = &InferArgMax,
                        .no_gradient_reason = "an index is not differentiable"};
  return x.graph->Add({.op = &op, .inputs = {x}}, site);
}

}  // namespace replicant::graph
