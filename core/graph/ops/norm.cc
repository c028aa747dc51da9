#include "core/graph/ops/norm.h"

#include <fmt/format.h>

#include "core/graph/ops/elementwise.h"

namespace replicant::graph {
namespace {

// inputs: x, gamma, beta
void CheckVectors(const InferContext& context) {
  const Shape& x = context.shape(0);
  bool is_good = x.rank() >= 1 && IsFloating(context.dtype(0));
  for (int i = 1; is_good && i < 3; ++i) {
    is_good = context.dtype(i) == context.dtype(0) &&
              context.shape(i) == Shape({x[x.rank() - 1]});
  }
  if (!is_good) {
    context.Fail(fmt::format(
        "want x [...,C] and gamma, beta [C] of one floating dtype, got {}, {}, "
        "{}",
        context.inputs[0].ToString(), context.inputs[1].ToString(),
        context.inputs[2].ToString()));
  }
}

std::vector<TensorType> InferLayerNorm(const InferContext& context) {
  CheckVectors(context);
  const Shape& x = context.shape(0);
  const Shape rows(x.dims().first(static_cast<size_t>(x.rank() - 1)));
  const TensorType statistics{context.dtype(0), rows};
  return {context.inputs[0], statistics, statistics};
}

std::vector<TensorType> InferBatchNorm(const InferContext& context) {
  CheckVectors(context);
  if (context.shape(0).num_elements() == 0) {
    context.Fail(fmt::format("want at least one element per channel, got {}",
                             context.inputs[0].ToString()));
  }
  return {context.inputs[0], context.inputs[1], context.inputs[1]};
}

// inputs: dy, x, gamma, and two statistics; outputs: dx, dgamma, dbeta
std::vector<TensorType> InferGradient(const InferContext& context) {
  return {context.inputs[1], context.inputs[2], context.inputs[2]};
}

std::vector<Output> AddGradient(const OpDef& op,
                                const GradientContext& context) {
  // the statistics' own adjoints are ignored: see the header
  if (!context.output_gradient(0).is_valid()) {
    return {kNoGradient, kNoGradient, kNoGradient};
  }
  const Output first = context.input(0).graph->Add(
      {.op = &op,
       .inputs = {context.output_gradient(0), context.input(0),
                  context.input(1), context.output(1), context.output(2)},
       .attributes = context.node.attributes},
      context.node.site);
  return {first, Graph::OutputOf(first, 1), Graph::OutputOf(first, 2)};
}

std::vector<Output> LayerNormGradient(const GradientContext& context) {
  static const OpDef op{
      .name = "LayerNormGradient",
      .infer = &InferGradient,
      .no_gradient_reason = "there is no second derivative of LayerNorm"};
  return AddGradient(op, context);
}

std::vector<Output> BatchNormGradient(const GradientContext& context) {
  static const OpDef op{
      .name = "BatchNormGradient",
      .infer = &InferGradient,
      .no_gradient_reason = "there is no second derivative of BatchNorm"};
  return AddGradient(op, context);
}

}  // namespace

Output LayerNorm(Output x, Output gamma, Output beta, double epsilon,
                 CallSite site) {
  static const OpDef op{.name = "LayerNorm",
                        .infer = &InferLayerNorm,
                        .gradient = &LayerNormGradient};
  return x.graph->Add({.op = &op,
                       .inputs = {x, gamma, beta},
                       .attributes = {{"epsilon", epsilon}}},
                      site);
}

BatchNormOutputs BatchNorm(Output x, Output gamma, Output beta, double epsilon,
                           CallSite site) {
  static const OpDef op{.name = "BatchNorm",
                        .infer = &InferBatchNorm,
                        .gradient = &BatchNormGradient};
  const Output y = x.graph->Add({.op = &op,
                                 .inputs = {x, gamma, beta},
                                 .attributes = {{"epsilon", epsilon}}},
                                site);
  return {
      .y = y, .mean = Graph::OutputOf(y, 1), .variance = Graph::OutputOf(y, 2)};
}

Output BatchNormInference(Output x, Output gamma, Output beta, Output mean,
                          Output variance, double epsilon, CallSite site) {
  const Output scale =
      Div(gamma, Sqrt(Add(variance, epsilon, site), site), site);
  return Add(Mul(Sub(x, mean, site), scale, site), beta, site);
}

}  // namespace replicant::graph
