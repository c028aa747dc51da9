#include "replay/client/importance_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/error.h"

namespace replicant::replay {

void ImportanceWeights(std::span<const double> probabilities, double exponent,
                       std::span<float> weights) {
  REPLICANT_CHECK_EQ(probabilities.size(), weights.size());
  if (!(exponent >= 0.0 && exponent <= 1.0)) {
    throw InvalidArgument(fmt::format(
        "ImportanceWeights: exponent {} is outside [0, 1]", exponent));
  }
  double least = 1.0;
  for (const double p : probabilities) {
    if (!(p > 0.0 && p <= 1.0)) {
      throw InvalidArgument(fmt::format(
          "ImportanceWeights: probability {} is outside (0, 1]", p));
    }
    least = std::min(least, p);
  }
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] =
        static_cast<float>(std::pow(least / probabilities[i], exponent));
  }
}

}  // namespace replicant::replay
