#include "env/rewards.h"

#include <cmath>

#include "base/check.h"

namespace replicant::env {
namespace {

// `d` >= 0 is the distance to the nearest bound in margins.
double FallOff(double d, Sigmoid sigmoid, double value_at_margin) {
  switch (sigmoid) {
    case Sigmoid::kGaussian: {
      const double scaled = d * std::sqrt(-2.0 * std::log(value_at_margin));
      return std::exp(-0.5 * scaled * scaled);
    }
    case Sigmoid::kLongTail: {
      const double scaled = d * std::sqrt(1.0 / value_at_margin - 1.0);
      return 1.0 / (scaled * scaled + 1.0);
    }
    case Sigmoid::kReciprocal:
      return 1.0 / (d * (1.0 / value_at_margin - 1.0) + 1.0);
    case Sigmoid::kLinear: {
      const double scaled = d * (1.0 - value_at_margin);
      return scaled < 1.0 ? 1.0 - scaled : 0.0;
    }
    case Sigmoid::kQuadratic: {
      const double scaled = d * std::sqrt(1.0 - value_at_margin);
      return scaled < 1.0 ? 1.0 - scaled * scaled : 0.0;
    }
  }
  REPLICANT_CHECK(false, "sigmoid {}", static_cast<int>(sigmoid));
}

}  // namespace

double Tolerance(double x, const ToleranceOptions& options) {
  REPLICANT_CHECK_LE(options.lower, options.upper);
  REPLICANT_CHECK_GE(options.margin, 0.0);
  if (options.lower <= x && x <= options.upper) return 1.0;
  if (options.margin == 0.0) return 0.0;
  const double distance = x < options.lower ? options.lower - x  //
                                            : x - options.upper;
  return FallOff(distance / options.margin, options.sigmoid,
                 options.value_at_margin);
}

double MeanTolerance(std::span<const double> values,
                     const ToleranceOptions& options) {
  double sum = 0.0;
  for (const double value : values) sum += Tolerance(value, options);
  return sum / static_cast<double>(values.size());
}

double SmallControl(std::span<const double> controls) {
  return MeanTolerance(
      controls,
      {.margin = 1.0, .sigmoid = Sigmoid::kQuadratic, .value_at_margin = 0.0});
}

}  // namespace replicant::env
