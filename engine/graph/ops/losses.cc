#include "engine/graph/ops/losses.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::graph {
namespace {

std::vector<TensorType> InferSoftmax(const InferContext& context) {
  const Shape& x = context.shape(0);
  if (!IsFloating(context.dtype(0)) || x.rank() < 1 || x[x.rank() - 1] < 1) {
    context.Fail(fmt::format(
        "want a floating dtype and a last dimension of at least 1, got {}",
        context.inputs[0].ToString()));
  }
  return {context.inputs[0]};
}

// dx = y * (dy - sum_k dy y)
std::vector<Output> SoftmaxGradient(const GradientContext& context) {
  const Output& y = context.output();
  const Output& dy = context.output_gradient();
  const Output sum = ReduceSum(Mul(dy, y), {.axes = {-1}, .keep_dims = true});
  return {Mul(y, Sub(dy, sum))};
}

// dx = dy - softmax(x) * sum_k dy
std::vector<Output> LogSoftmaxGradient(const GradientContext& context) {
  const Output& dy = context.output_gradient();
  const Output sum = ReduceSum(dy, {.axes = {-1}, .keep_dims = true});
  return {Sub(dy, Mul(Exp(context.output()), sum))};
}

std::vector<TensorType> InferCrossEntropy(const InferContext& context) {
  const Shape& logits = context.shape(0);
  if (logits.rank() != 2 || logits[1] < 1 || !IsFloating(context.dtype(0)) ||
      context.inputs[0] != context.inputs[1]) {
    context.Fail(fmt::format(
        "want logits and target of one [B,K] shape and floating dtype, got {} "
        "and {}",
        context.inputs[0].ToString(), context.inputs[1].ToString()));
  }
  return {{context.dtype(0), Shape({logits[0]})}};
}

// d loss[b] / d logits[b,k] = softmax(logits[b])[k] * sum_j target[b,j]
//                             - target[b,k]
std::vector<Output> CrossEntropyGradient(const GradientContext& context) {
  const Output& logits = context.input(0);
  const Output& target = context.input(1);
  const Output mass = ReduceSum(target, {.axes = {1}, .keep_dims = true});
  const Output dloss =
      Reshape(context.output_gradient(), {logits.shape()[0], 1});
  return {Mul(Sub(Mul(Softmax(logits), mass), target), dloss), kNoGradient};
}

std::vector<TensorType> InferProjection(const InferContext& context) {
  const Shape& p = context.shape(0);
  bool is_good = p.rank() == 2 && p[1] >= 2 && IsFloating(context.dtype(0));
  for (int i = 1; is_good && i < 3; ++i) {
    is_good = context.dtype(i) == context.dtype(0) &&
              context.shape(i) == Shape({p[0]});
  }
  if (!is_good) {
    context.Fail(fmt::format(
        "want probabilities [B,K], K >= 2, and reward, discount [B] of one "
        "floating dtype, got {}, {}, {}",
        context.inputs[0].ToString(), context.inputs[1].ToString(),
        context.inputs[2].ToString()));
  }
  return {context.inputs[0]};
}

}  // namespace

Output Softmax(Output x, CallSite site) {
  static const OpDef op{
      .name = "Softmax", .infer = &InferSoftmax, .gradient = &SoftmaxGradient};
  return x.graph->Add({.op = &op, .inputs = {x}}, site);
}

Output LogSoftmax(Output x, CallSite site) {
  static const OpDef op{.name = "LogSoftmax",
                        .infer = &InferSoftmax,
                        .gradient = &LogSoftmaxGradient};
  return x.graph->Add({.op = &op, .inputs = {x}}, site);
}

Output SoftmaxCrossEntropy(Output logits, Output target, CallSite site) {
  static const OpDef op{.name = "SoftmaxCrossEntropy",
                        .infer = &InferCrossEntropy,
                        .gradient = &CrossEntropyGradient};
  return logits.graph->Add({.op = &op, .inputs = {logits, target}}, site);
}

Output SoftmaxCrossEntropyWithLabels(Output logits, Output labels,
                                     double label_smoothing, CallSite site) {
  const Graph::SiteScope scope(logits, site);
  if (!(label_smoothing >= 0.0 && label_smoothing < 1.0)) {
    throw InvalidArgument(fmt::format(
        "{}: SoftmaxCrossEntropyWithLabels: want 0 <= label smoothing < 1, got "
        "{}",
        logits.graph->site().ToString(), label_smoothing));
  }
  const Shape& shape = logits.shape();
  const int64_t depth = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  Output target = OneHot(labels, depth, logits.dtype());
  // 1 for a class; 0, which makes the row NaN, for a label outside [0, K)
  target = Div(target, ReduceSum(target, {.axes = {-1}, .keep_dims = true}));
  if (label_smoothing > 0.0) {
    target = Affine(target, 1.0 - label_smoothing,
                    label_smoothing / static_cast<double>(depth));
  }
  return SoftmaxCrossEntropy(logits, target);
}

Output CategoricalProjection(Output probabilities, Output reward,
                             Output discount, double v_min, double v_max,
                             CallSite site) {
  static const OpDef op{.name = "CategoricalProjection",
                        .infer = &InferProjection,
                        .no_gradient_reason = "its result is a target"};
  const Graph::SiteScope scope(probabilities, site);
  if (!(v_min < v_max)) {
    throw InvalidArgument(
        fmt::format("{}: CategoricalProjection: want v_min < v_max, got {} and "
                    "{}",
                    probabilities.graph->site().ToString(), v_min, v_max));
  }
  return probabilities.graph->Add(
      {.op = &op,
       .inputs = {probabilities, reward, discount},
       .attributes = {{"v_min", v_min}, {"v_max", v_max}}});
}

}  // namespace replicant::graph
