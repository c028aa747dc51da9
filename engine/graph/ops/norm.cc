#include "engine/graph/ops/norm.h"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::graph {
namespace {

// Whether gamma and beta, inputs 1 and 2, have `shape` and the dtype of x, or
// f32 if x is bf16.
bool AreVectors(const InferContext& context, const Shape& shape) {
  const DType dtype = context.dtype(1);
  const bool fits = dtype == context.dtype(0) ||
                    (context.dtype(0) == DType::kBF16 && dtype == DType::kF32);
  return fits && context.inputs[1] == TensorType{dtype, shape} &&
         context.inputs[2] == TensorType{dtype, shape};
}

std::string DescribeInputs(const InferContext& context) {
  std::string text;
  for (const TensorType& input : context.inputs) {
    text += (text.empty() ? "" : ", ") + input.ToString();
  }
  return text;
}

bool IsFloatingArray(const InferContext& context) {
  return context.shape(0).rank() >= 1 && IsFloating(context.dtype(0));
}

Shape LastDimension(const Shape& x) { return Shape({x[x.rank() - 1]}); }

std::vector<TensorType> InferLayerNorm(const InferContext& context) {
  const Shape& x = context.shape(0);
  if (!IsFloatingArray(context) || !AreVectors(context, LastDimension(x))) {
    context.Fail(fmt::format(
        "want x [...,C] and gamma, beta [C] of one floating dtype, got {}",
        DescribeInputs(context)));
  }
  const Shape rows(x.dims().first(static_cast<size_t>(x.rank() - 1)));
  const TensorType statistics{context.dtype(1), rows};
  return {context.inputs[0], statistics, statistics};
}

void CheckNotEmpty(const InferContext& context) {
  if (context.shape(0).num_elements() > 0) return;
  context.Fail(fmt::format("want at least one element per channel, got {}",
                           context.inputs[0].ToString()));
}

// Whether inputs 0 to 2 fit as x, gamma and beta, and input `residual`, if
// there is one, has the type of x.
bool AreBatchNormInputs(const InferContext& context, int residual) {
  const Shape& x = context.shape(0);
  return IsFloatingArray(context) &&
         (AreVectors(context, LastDimension(x)) ||
          (x.rank() >= 2 &&
           AreVectors(context, Shape({x[0], x[x.rank() - 1]})))) &&
         (context.num_inputs() <= residual ||
          context.inputs[static_cast<size_t>(residual)] == context.inputs[0]);
}

std::vector<TensorType> InferBatchNorm(const InferContext& context) {
  if (!AreBatchNormInputs(context, /*residual=*/3)) {
    context.Fail(fmt::format(
        "want x [B,...,C], gamma, beta [C] or [B,C], and a residual as x, of "
        "one floating dtype, got {}",
        DescribeInputs(context)));
  }
  CheckNotEmpty(context);
  const TensorType statistics{context.dtype(1),
                              LastDimension(context.shape(0))};
  std::vector<TensorType> outputs = {context.inputs[0], statistics, statistics};
  if (context.attributes.Has("mask")) {
    outputs.push_back(
        {DType::kU8,
         Shape({static_cast<int64_t>(context.inputs[0].SizeBytes() / 16)})});
  }
  if (context.attributes.Has("pool_window")) {
    outputs[0].shape = PooledShape(
        outputs[0].shape, {.window = context.attributes.Int("pool_window"),
                           .stride = context.attributes.Int("pool_stride"),
                           .padding = context.attributes.Int("pool_padding")});
    outputs.push_back({DType::kU8, outputs[0].shape});
  }
  return outputs;
}

TensorType MomentsOf(const Shape& x, DType dtype) {
  return {dtype, Shape({2, x[x.rank() - 1]})};
}

std::vector<TensorType> InferBatchMoments(const InferContext& context) {
  if (!IsFloatingArray(context)) {
    context.Fail(fmt::format("want x [...,C] of a floating dtype, got {}",
                             DescribeInputs(context)));
  }
  CheckNotEmpty(context);
  return {MomentsOf(context.shape(0), context.ResultDType())};
}

std::vector<TensorType> InferBatchStatistics(const InferContext& context) {
  const TensorType statistics{
      context.dtype(0) == DType::kBF16 ? DType::kF32 : context.dtype(0),
      LastDimension(context.shape(0))};
  return {statistics, statistics};
}

std::vector<TensorType> InferCombineMoments(const InferContext& context) {
  const Shape& shape = context.shape(0);
  if (!IsFloating(context.dtype(0)) || shape.rank() != 3 || shape[0] < 1 ||
      shape[1] != 2) {
    context.Fail(fmt::format("want moments [R,2,C] of a floating dtype, got {}",
                             DescribeInputs(context)));
  }
  return {{context.dtype(0), shape.WithoutLeading()}};
}

std::vector<TensorType> InferBatchNormApply(const InferContext& context) {
  if (!AreBatchNormInputs(context, /*residual=*/4) ||
      context.inputs[3] != MomentsOf(context.shape(0), context.dtype(1))) {
    context.Fail(fmt::format(
        "want x [B,...,C], gamma, beta [C] or [B,C], moments [2,C], and a "
        "residual as x, of one floating dtype, got {}",
        DescribeInputs(context)));
  }
  CheckNotEmpty(context);
  return {context.inputs[0]};
}

// inputs: dy, x, gamma, mean, 1 / sqrt(variance + epsilon);
// outputs: dx, dgamma, dbeta
std::vector<TensorType> InferLayerNormGradient(const InferContext& context) {
  return {context.inputs[1], context.inputs[2], context.inputs[2]};
}

// inputs: dy, x, gamma, beta, mean, variance, and y or its mask if there are a
// residual and a relu, with the attribute "second_dy" the other part of the
// gradient, and with "residual_epsilon" x, gamma, mean and variance of the
// residual's norm; outputs: dx, dgamma, dbeta, the residual's gradient if there
// is y or its mask, and dx, dgamma, dbeta of the residual's norm
std::vector<TensorType> InferBatchNormGradient(const InferContext& context) {
  std::vector<TensorType> outputs = {context.inputs[1], context.inputs[2],
                                     context.inputs[2]};
  if (context.num_inputs() > 6) outputs.push_back(context.inputs[1]);
  if (context.attributes.Has("residual_epsilon")) {
    const TensorType& gamma = context.inputs[context.inputs.size() - 3];
    outputs.insert(outputs.end(), {context.inputs[1], gamma, gamma});
  }
  return outputs;
}

// inputs: dy, x, gamma, beta, moments, and y if there are a residual and a
// relu; outputs: dgamma, dbeta, dmoments, and with a relu the gradient before
// the relu
std::vector<TensorType> InferBatchNormApplyGradient(
    const InferContext& context) {
  std::vector<TensorType> outputs = {context.inputs[2], context.inputs[3],
                                     context.inputs[4]};
  if (context.attributes.Bool("relu")) outputs.push_back(context.inputs[1]);
  return outputs;
}

// inputs: dmoments [2, C], moments [R, 2, C] and their combination
std::vector<TensorType> InferCombineMomentsGradient(
    const InferContext& context) {
  return {context.inputs[1]};
}

// The statistics' own adjoints are ignored: see the header.
std::vector<Output> LayerNormGradient(const GradientContext& context) {
  static const OpDef op{
      .name = "LayerNormGradient",
      .infer = &InferLayerNormGradient,
      .no_gradient_reason = "there is no second derivative of LayerNorm"};
  const Output& dy = context.output_gradient(0);
  if (!dy.is_valid()) return {kNoGradient, kNoGradient, kNoGradient};
  const Output dx =
      dy.graph->Add({.op = &op,
                     .inputs = {dy, context.input(0), context.input(1),
                                context.output(1), context.output(2)},
                     .attributes = context.node.attributes});
  return {dx, Graph::OutputOf(dx, 1), Graph::OutputOf(dx, 2)};
}

std::vector<Output> BatchNormGradient(const GradientContext& context) {
  static const OpDef op{
      .name = "BatchNormGradient",
      .infer = &InferBatchNormGradient,
      .no_gradient_reason = "there is no second derivative of BatchNorm"};
  const Output& dy = context.output_gradient(0);
  const bool has_residual = context.inputs.size() > 3;
  if (!dy.is_valid()) {
    return std::vector<Output>(context.inputs.size(), kNoGradient);
  }
  const bool masks_residual =
      has_residual && context.node.attributes.Bool("relu");
  std::vector<Output> inputs = {dy,
                                context.input(0),
                                context.input(1),
                                context.input(2),
                                context.output(1),
                                context.output(2)};
  if (masks_residual) inputs.push_back(context.output(0));
  const Output dx = dy.graph->Add({.op = &op,
                                   .inputs = std::move(inputs),
                                   .attributes = context.node.attributes});
  std::vector<Output> gradients = {dx, Graph::OutputOf(dx, 1),
                                   Graph::OutputOf(dx, 2)};
  if (has_residual) {
    gradients.push_back(masks_residual ? Graph::OutputOf(dx, 3) : dy);
  }
  return gradients;
}

// Row 0 (mean) or 1 (variance) of moments: [C].
Output MomentsRow(Output moments, int64_t row) {
  const int64_t channels = moments.shape()[1];
  return Reshape(Slice(moments, {row, 0}, {1, channels}), {-1});
}

// With n elements per channel: dx = dmean / n + 2 dvariance / n (x - mean).
// Elementwise ops, so that a pass fuses them with the other terms of dx.
std::vector<Output> BatchMomentsGradient(const GradientContext& context) {
  const Output x = context.input(0);
  const Output mean = MomentsRow(context.output(), 0);
  const double per_element = static_cast<double>(mean.shape().num_elements()) /
                             static_cast<double>(x.shape().num_elements());
  const Output& d = context.output_gradient();
  const Output slope = Mul(MomentsRow(d, 1), 2.0 * per_element);
  const Output offset = Mul(MomentsRow(d, 0), per_element);
  return {Add(Mul(Sub(x, mean), slope), offset)};
}

std::vector<Output> CombineMomentsGradient(const GradientContext& context) {
  static const OpDef op{
      .name = "CombineMomentsGradient",
      .infer = &InferCombineMomentsGradient,
      .no_gradient_reason = "there is no second derivative of BatchNorm"};
  const Output& d = context.output_gradient();
  return {d.graph->Add(
      {.op = &op, .inputs = {d, context.input(0), context.output()}})};
}

// Reshapes gamma or beta of each example, [B, C], so that it broadcasts against
// x [B, ..., C].
Output Spread(Output vector, Output x) {
  if (vector.shape().rank() != 2 || x.shape().rank() <= 2) return vector;
  std::vector<int64_t> dims(static_cast<size_t>(x.shape().rank()), 1);
  dims.front() = vector.shape()[0];
  dims.back() = vector.shape()[1];
  return Reshape(vector, dims);
}

// dx without the share of the moments: the gradient before the relu times
// gamma / sqrt(variance + epsilon), as elementwise ops.
std::vector<Output> BatchNormApplyGradient(const GradientContext& context) {
  static const OpDef op{
      .name = "BatchNormApplyGradient",
      .infer = &InferBatchNormApplyGradient,
      .no_gradient_reason = "there is no second derivative of BatchNorm"};
  const Output& dy = context.output_gradient();
  const Output x = context.input(0);
  const bool has_residual = context.inputs.size() > 4;
  const bool has_relu = context.node.attributes.Bool("relu");
  std::vector<Output> inputs = {dy, x, context.input(1), context.input(2),
                                context.input(3)};
  if (has_relu && has_residual) inputs.push_back(context.output());
  const Output dgamma = dy.graph->Add({.op = &op,
                                       .inputs = std::move(inputs),
                                       .attributes = context.node.attributes});
  const Output dz = has_relu ? Graph::OutputOf(dgamma, 3) : dy;
  const Output deviation = Sqrt(Add(MomentsRow(context.input(3), 1),
                                    context.node.attributes.Float("epsilon")));
  const Output factor = Div(context.input(1), deviation);
  std::vector<Output> gradients = {Mul(dz, Spread(factor, x)), dgamma,
                                   Graph::OutputOf(dgamma, 1),
                                   Graph::OutputOf(dgamma, 2)};
  if (has_residual) gradients.push_back(dz);
  return gradients;
}

// Scales x [1, N] to norm 1.
Output Normalised(Output x) {
  const Output norm = Sqrt(ReduceSum(Square(x)));
  const Output least = x.graph->Scalar(1e-12, x.dtype());
  return Div(x, Maximum(norm, least));
}

// The weight as a matrix [O, everything else].
Output AsMatrix(Output weight) {
  const Shape& shape = weight.shape();
  // a scalar has no rows; Reshape reports the wrong rank
  return Reshape(weight, {shape.rank() == 0 ? 0 : shape[0], -1});
}

// (W v)^T: [1, N] -> [1, O]
Output TimesVector(Output matrix, Output v) {
  return MatMul(v, matrix, {.transpose_b = true});
}

Output DividedBySigma(Output weight, Output u, Output w_v) {
  return Div(weight, ReduceSum(Mul(u, w_v)));
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

BatchNormOutputs BatchNorm(Output x, Output gamma, Output beta,
                           const BatchNormOptions& options, CallSite site) {
  static const OpDef op{.name = "BatchNorm",
                        .infer = &InferBatchNorm,
                        .gradient = &BatchNormGradient};
  std::vector<Output> inputs = {x, gamma, beta};
  if (options.residual.is_valid()) inputs.push_back(options.residual);
  const Output y = x.graph->Add({.op = &op,
                                 .inputs = std::move(inputs),
                                 .attributes = {{"epsilon", options.epsilon},
                                                {"relu", options.has_relu}}},
                                site);
  return {
      .y = y, .mean = Graph::OutputOf(y, 1), .variance = Graph::OutputOf(y, 2)};
}

BatchNormGradientInputs::BatchNormGradientInputs(const Node& gradient) {
  auto end = static_cast<int>(gradient.inputs.size());
  if (gradient.attributes.Has("residual_epsilon")) residual = end -= 4;
  if (gradient.attributes.Has("second_dy")) second_dy = --end;
  if (end > 6) (gradient.attributes.Has("mask") ? mask : y) = 6;
}

const OpDef& BatchStatisticsOp() {
  static const OpDef op{
      .name = "BatchStatistics",
      .infer = &InferBatchStatistics,
      .no_gradient_reason = "passes add it behind all gradients"};
  return op;
}

Output BatchNormInference(Output x, Output gamma, Output beta, Output mean,
                          Output variance, const BatchNormOptions& options,
                          CallSite site) {
  const Graph::SiteScope scope(x, site);
  const Output scale = Div(gamma, Sqrt(Add(variance, options.epsilon)));
  Output y = Add(Mul(Sub(x, mean), Spread(scale, x)), Spread(beta, x));
  if (options.residual.is_valid()) y = Add(y, options.residual);
  return options.has_relu ? Relu(y) : y;
}

Output BatchMoments(Output x, CallSite site) {
  static const OpDef op{.name = "BatchMoments",
                        .infer = &InferBatchMoments,
                        .gradient = &BatchMomentsGradient};
  return x.graph->Add({.op = &op, .inputs = {x}}, site);
}

Output CombineMoments(Output moments, CallSite site) {
  static const OpDef op{.name = "CombineMoments",
                        .infer = &InferCombineMoments,
                        .gradient = &CombineMomentsGradient};
  return moments.graph->Add({.op = &op, .inputs = {moments}}, site);
}

Output BatchNormApply(Output x, Output gamma, Output beta, Output moments,
                      const BatchNormOptions& options, CallSite site) {
  static const OpDef op{.name = "BatchNormApply",
                        .infer = &InferBatchNormApply,
                        .gradient = &BatchNormApplyGradient};
  std::vector<Output> inputs = {x, gamma, beta, moments};
  if (options.residual.is_valid()) inputs.push_back(options.residual);
  return x.graph->Add({.op = &op,
                       .inputs = std::move(inputs),
                       .attributes = {{"epsilon", options.epsilon},
                                      {"relu", options.has_relu}}},
                      site);
}

SpectralNormOutputs SpectralNorm(Output weight, Output u, CallSite site) {
  const Graph::SiteScope scope(weight, site);
  const Output matrix = AsMatrix(weight);
  const Output row = Reshape(u, {1, -1});
  const Output v = StopGradient(Normalised(MatMul(row, matrix)));
  const Output w_v = TimesVector(matrix, v);
  const Output new_u = StopGradient(Normalised(w_v));
  return {.y = DividedBySigma(weight, new_u, w_v),
          .u = Reshape(new_u, {-1}),
          .v = Reshape(v, {-1})};
}

Output SpectralNormInference(Output weight, Output u, Output v, CallSite site) {
  const Graph::SiteScope scope(weight, site);
  const Output w_v = TimesVector(AsMatrix(weight), Reshape(v, {1, -1}));
  return DividedBySigma(weight, Reshape(u, {1, -1}), w_v);
}

}  // namespace replicant::graph
