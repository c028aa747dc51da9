#pragma once

#include <limits>
#include <span>

namespace replicant::env {

// Decay of Tolerance() outside its bounds. With d the distance to the nearest
// bound in units of the margin and v the value at the margin:
//
//   kGaussian    exp(-d^2 s^2 / 2),  s = sqrt(-2 ln v)
//   kLongTail    1 / (d^2 s^2 + 1),  s = sqrt(1 / v - 1)
//   kReciprocal  1 / (d s + 1),      s = 1 / v - 1
//   kLinear      max(0, 1 - d s),    s = 1 - v
//   kQuadratic   max(0, 1 - d^2 s^2), s = sqrt(1 - v)
enum class Sigmoid { kGaussian, kLongTail, kReciprocal, kLinear, kQuadratic };

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct ToleranceOptions {
  // Bounds, both included, of the interval with value 1.
  double lower = 0.0;
  double upper = 0.0;
  // Distance from the bounds at which the value is `value_at_margin`; 0 for a
  // step function.
  double margin = 0.0;
  Sigmoid sigmoid = Sigmoid::kGaussian;
  double value_at_margin = 0.1;
};

// 1 for x within the bounds, decaying to 0 with the distance from them. The
// building block of the Control Suite's rewards; equal to
// dm_control.utils.rewards.tolerance.
//
// Source: DeepMind Control Suite, sec. 3 (arXiv:1801.00690).
double Tolerance(double x, const ToleranceOptions& options);

// The mean of Tolerance() over `values`.
double MeanTolerance(std::span<const double> values,
                     const ToleranceOptions& options);

// The suite's preference for small actions: the mean over the controls of
// Tolerance() with margin 1, quadratic, value 0 at the margin.
double SmallControl(std::span<const double> controls);

}  // namespace replicant::env
