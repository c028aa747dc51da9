// Layer norm and batch norm, whole and in parts, with their adjoints. Inputs,
// outputs and formulas as in engine/graph/ops/norm.cc.
#include <limits>

#include "engine/export/stablehlo_forms.h"

namespace replicant::exporting {
namespace {

// A norm of x: layer norm over the last axis, batch norm over all others. The
// reduced axes of statistics are gone.
struct Norm {
  Norm(HloBuilder& builder, const Shape& x_shape, bool is_layer)
      : b(builder), shape(x_shape) {
    const int last = shape.rank() - 1;
    for (int axis = 0; axis <= last; ++axis) {
      ((axis == last) == is_layer ? reduced : kept).push_back(axis);
    }
    for (const int64_t axis : reduced) {
      count *= static_cast<double>(shape[static_cast<int>(axis)]);
    }
  }

  // A group's statistic, for each element of x.
  HloValue Spread(const HloValue& statistic) const {
    return b.BroadcastInDim(statistic, shape, kept);
  }
  // gamma or beta [C], or [B, C] of each example.
  HloValue SpreadVector(const HloValue& vector) const {
    const int64_t last = shape.rank() - 1;
    return b.BroadcastInDim(
        vector, shape, vector.shape.rank() == 2 ? Dims{0, last} : Dims{last});
  }
  // The adjoint of SpreadVector().
  HloValue SumToVector(const HloValue& x, const Shape& vector) const {
    Dims axes;
    for (int axis = vector.rank() == 2 ? 1 : 0; axis + 1 < shape.rank();
         ++axis) {
      axes.push_back(axis);
    }
    return b.Sum(x, axes);
  }
  HloValue Mean(const HloValue& x) const {
    const HloValue sum = b.Sum(x, reduced);
    return b.Div(sum, b.Like(count, sum));
  }
  // The mean square of x without its mean. A difference of squares would lose
  // all digits.
  HloValue Variance(const HloValue& x, const HloValue& mean) const {
    const HloValue distance = b.Sub(x, Spread(mean));
    return Mean(b.Mul(distance, distance));
  }
  // 1 / sqrt(variance + epsilon)
  HloValue Scale(const HloValue& variance, double epsilon) const {
    const HloValue deviation = b.Unary("sqrt", b.Add(variance, epsilon));
    return b.Div(b.Like(1.0, deviation), deviation);
  }
  HloValue Normalised(const HloValue& x, const HloValue& mean,
                      const HloValue& scale) const {
    return b.Mul(b.Sub(x, Spread(mean)), Spread(scale));
  }
  HloValue Affine(const HloValue& x_hat, const HloValue& gamma,
                  const HloValue& beta) const {
    return b.Add(b.Mul(x_hat, SpreadVector(gamma)), SpreadVector(beta));
  }

  HloBuilder& b;
  Shape shape;
  Dims kept, reduced;
  double count = 1.0;
};

HloValue Input(HloBuilder& b, const StableHloNode& n, size_t i) {
  return b.Widen(n.input(i));
}

HloValue ResultOf(HloBuilder& b, const StableHloNode& n, int output,
                  const HloValue& value) {
  return b.Convert(value, n.type(output).dtype);
}

HloValues WriteLayerNorm(HloBuilder& b, const StableHloNode& n) {
  const Norm norm(b, n.input(0).shape, /*is_layer=*/true);
  const HloValue x = Input(b, n, 0);
  const HloValue mean = norm.Mean(x);
  const HloValue scale =
      norm.Scale(norm.Variance(x, mean), n.attributes().Float("epsilon"));
  const HloValue y = norm.Affine(norm.Normalised(x, mean, scale),
                                 Input(b, n, 1), Input(b, n, 2));
  return {ResultOf(b, n, 0, y), ResultOf(b, n, 1, mean),
          ResultOf(b, n, 2, scale)};
}

// dx = scale * (d - mean(d) - x^ mean(d x^)), d = dy gamma
HloValue InputGradient(const Norm& norm, const HloValue& d,
                       const HloValue& x_hat, const HloValue& scale) {
  HloBuilder& b = norm.b;
  const HloValue along = b.Mul(x_hat, norm.Spread(norm.Mean(b.Mul(d, x_hat))));
  const HloValue rest = b.Sub(b.Sub(d, norm.Spread(norm.Mean(d))), along);
  return b.Mul(rest, norm.Spread(scale));
}

// inputs: dy, x, gamma, mean, scale
HloValues WriteLayerNormGradient(HloBuilder& b, const StableHloNode& n) {
  const Norm norm(b, n.input(1).shape, /*is_layer=*/true);
  const HloValue dy = Input(b, n, 0);
  const HloValue gamma = Input(b, n, 2);
  const HloValue scale = Input(b, n, 4);
  const HloValue x_hat = norm.Normalised(Input(b, n, 1), Input(b, n, 3), scale);
  const HloValue d = b.Mul(dy, norm.SpreadVector(gamma));
  return {ResultOf(b, n, 0, InputGradient(norm, d, x_hat, scale)),
          ResultOf(b, n, 1, norm.SumToVector(b.Mul(dy, x_hat), gamma.shape)),
          ResultOf(b, n, 2, norm.SumToVector(dy, gamma.shape))};
}

// --- batch norm ---

// y from x^, with the residual, input number `residual`, and the relu.
HloValue FinishBatchNorm(const Norm& norm, const StableHloNode& n,
                         const HloValue& x_hat, size_t residual) {
  HloBuilder& b = norm.b;
  HloValue y = norm.Affine(x_hat, Input(b, n, 1), Input(b, n, 2));
  if (n.inputs.size() > residual) y = b.Add(y, Input(b, n, residual));
  if (n.attributes().Bool("relu")) y = b.Binary("maximum", y, b.Like(0.0, y));
  return ResultOf(b, n, 0, y);
}

HloValues WriteBatchNorm(HloBuilder& b, const StableHloNode& n) {
  const Norm norm(b, n.input(0).shape, /*is_layer=*/false);
  const HloValue x = Input(b, n, 0);
  const HloValue mean = norm.Mean(x);
  const HloValue variance = norm.Variance(x, mean);
  const HloValue x_hat = norm.Normalised(
      x, mean, norm.Scale(variance, n.attributes().Float("epsilon")));
  return {FinishBatchNorm(norm, n, x_hat, /*residual=*/3),
          ResultOf(b, n, 1, mean), ResultOf(b, n, 2, variance)};
}

// dy where the relu has let y through; y is input number `y` if there is a
// residual, else it is computed again.
HloValue BehindRelu(const Norm& norm, const StableHloNode& n,
                    const HloValue& x_hat, size_t y) {
  HloBuilder& b = norm.b;
  HloValue dy = Input(b, n, 0);
  if (!n.attributes().Bool("relu")) return dy;
  const HloValue value =
      n.inputs.size() > y ? Input(b, n, y)
                          : norm.Affine(x_hat, Input(b, n, 2), Input(b, n, 3));
  return b.Select(b.Compare("GT", value, 0.0), dy, b.Like(0.0, dy));
}

// inputs: dy, x, gamma, beta, mean, variance, perhaps y; outputs: dx, dgamma,
// dbeta, and with y the residual's gradient
HloValues WriteBatchNormGradient(HloBuilder& b, const StableHloNode& n) {
  const Norm norm(b, n.input(1).shape, /*is_layer=*/false);
  const HloValue gamma = Input(b, n, 2);
  const HloValue scale =
      norm.Scale(Input(b, n, 5), n.attributes().Float("epsilon"));
  const HloValue x_hat = norm.Normalised(Input(b, n, 1), Input(b, n, 4), scale);
  const HloValue dz = BehindRelu(norm, n, x_hat, /*y=*/6);
  const HloValue d = b.Mul(dz, norm.SpreadVector(gamma));
  HloValues outputs = {
      ResultOf(b, n, 0, InputGradient(norm, d, x_hat, scale)),
      ResultOf(b, n, 1, norm.SumToVector(b.Mul(dz, x_hat), gamma.shape)),
      ResultOf(b, n, 2, norm.SumToVector(dz, gamma.shape))};
  if (n.node.outputs.size() > 3) outputs.push_back(ResultOf(b, n, 3, dz));
  return outputs;
}

// --- batch norm in parts ---

// Two vectors [C] as moments [2, C].
HloValue Moments(HloBuilder& b, const HloValue& mean,
                 const HloValue& variance) {
  const Shape row({1, mean.shape[0]});
  return b.Concat({b.Reshape(mean, row), b.Reshape(variance, row)}, 0);
}

// Row 0 (mean) or 1 (variance) of moments [2, C].
HloValue MomentsRow(HloBuilder& b, const HloValue& moments, int64_t row) {
  const int64_t channels = moments.shape[1];
  return b.Reshape(b.Slice(moments, {row, 0}, {row + 1, channels}),
                   Shape({channels}));
}

HloValues WriteBatchMoments(HloBuilder& b, const StableHloNode& n) {
  const Norm norm(b, n.input(0).shape, /*is_layer=*/false);
  const HloValue x = Input(b, n, 0);
  const HloValue mean = norm.Mean(x);
  return {ResultOf(b, n, 0, Moments(b, mean, norm.Variance(x, mean)))};
}

// The means or variances [R, C] of moments [R, 2, C].
HloValue MomentsColumn(HloBuilder& b, const HloValue& moments, int64_t row) {
  const int64_t parts = moments.shape[0];
  const int64_t channels = moments.shape[2];
  return b.Reshape(b.Slice(moments, {0, row, 0}, {parts, row + 1, channels}),
                   Shape({parts, channels}));
}

HloValue MeanOfParts(HloBuilder& b, const HloValue& x) {
  const HloValue sum = b.Sum(x, {0});
  return b.Div(sum, b.Like(static_cast<double>(x.shape[0]), sum));
}

HloValues WriteCombineMoments(HloBuilder& b, const StableHloNode& n) {
  const HloValue moments = Input(b, n, 0);
  const HloValue means = MomentsColumn(b, moments, 0);
  const HloValue mean = MeanOfParts(b, means);
  const HloValue distance = b.Sub(means, b.BroadcastTo(mean, means.shape));
  const HloValue variance = MeanOfParts(
      b, b.Add(MomentsColumn(b, moments, 1), b.Mul(distance, distance)));
  return {ResultOf(b, n, 0, Moments(b, mean, variance))};
}

// inputs: dmoments [2, C], moments [R, 2, C], their combination [2, C]
//
//   dmean_r = (dmean + 2 dvariance (mean_r - mean)) / R
//   dvariance_r = dvariance / R
HloValues WriteCombineMomentsGradient(HloBuilder& b, const StableHloNode& n) {
  const HloValue d = Input(b, n, 0);
  const HloValue means = MomentsColumn(b, Input(b, n, 1), 0);
  const HloValue mean = MomentsRow(b, Input(b, n, 2), 0);
  const HloValue dmean = b.BroadcastTo(MomentsRow(b, d, 0), means.shape);
  const HloValue dvariance = b.BroadcastTo(MomentsRow(b, d, 1), means.shape);
  const HloValue distance = b.Sub(means, b.BroadcastTo(mean, means.shape));
  const HloValue parts = b.Like(static_cast<double>(means.shape[0]), means);
  const Shape column({means.shape[0], 1, means.shape[1]});
  const HloValue of_mean =
      b.Div(b.Add(dmean, b.Mul(b.Mul(dvariance, 2.0), distance)), parts);
  return {ResultOf(b, n, 0,
                   b.Concat({b.Reshape(of_mean, column),
                             b.Reshape(b.Div(dvariance, parts), column)},
                            /*axis=*/1))};
}

HloValues WriteBatchNormApply(HloBuilder& b, const StableHloNode& n) {
  const Norm norm(b, n.input(0).shape, /*is_layer=*/false);
  const HloValue moments = Input(b, n, 3);
  const HloValue scale =
      norm.Scale(MomentsRow(b, moments, 1), n.attributes().Float("epsilon"));
  const HloValue x_hat =
      norm.Normalised(Input(b, n, 0), MomentsRow(b, moments, 0), scale);
  return {FinishBatchNorm(norm, n, x_hat, /*residual=*/4)};
}

// inputs: dy, x, gamma, beta, moments, perhaps y; outputs: dgamma, dbeta,
// dmoments, and with a relu dz
//
//   dmean = -scale sum(gamma dz)
//   dvariance = -scale^2 / 2 sum(gamma dz x^)
HloValues WriteBatchNormApplyGradient(HloBuilder& b, const StableHloNode& n) {
  const Norm norm(b, n.input(1).shape, /*is_layer=*/false);
  const HloValue gamma = Input(b, n, 2);
  const HloValue moments = Input(b, n, 4);
  const HloValue scale =
      norm.Scale(MomentsRow(b, moments, 1), n.attributes().Float("epsilon"));
  const HloValue x_hat =
      norm.Normalised(Input(b, n, 1), MomentsRow(b, moments, 0), scale);
  const HloValue dz = BehindRelu(norm, n, x_hat, /*y=*/5);
  const HloValue d = b.Mul(dz, norm.SpreadVector(gamma));
  const HloValue dmean =
      b.Unary("negate", b.Mul(scale, b.Sum(d, norm.reduced)));
  const HloValue dvariance = b.Mul(
      b.Mul(b.Mul(scale, scale), b.Sum(b.Mul(d, x_hat), norm.reduced)), -0.5);
  HloValues outputs = {
      ResultOf(b, n, 0, norm.SumToVector(b.Mul(dz, x_hat), gamma.shape)),
      ResultOf(b, n, 1, norm.SumToVector(dz, gamma.shape)),
      ResultOf(b, n, 2, Moments(b, dmean, dvariance))};
  if (n.node.outputs.size() > 3) outputs.push_back(ResultOf(b, n, 3, dz));
  return outputs;
}

}  // namespace

void AddNormForms(StableHloForms& forms) {
  forms["LayerNorm"] = {&WriteLayerNorm};
  forms["LayerNormGradient"] = {&WriteLayerNormGradient};
  forms["BatchNorm"] = {&WriteBatchNorm};
  forms["BatchNormGradient"] = {&WriteBatchNormGradient};
  forms["BatchMoments"] = {&WriteBatchMoments};
  forms["CombineMoments"] = {&WriteCombineMoments};
  forms["CombineMomentsGradient"] = {&WriteCombineMomentsGradient};
  forms["BatchNormApply"] = {&WriteBatchNormApply};
  forms["BatchNormApplyGradient"] = {&WriteBatchNormApplyGradient};
}

}  // namespace replicant::exporting
