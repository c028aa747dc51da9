#pragma once

#include <cstdint>
#include <vector>

#include "agents/learning_spec.h"
#include "base/tensor/shape.h"

namespace replicant::testing {

// A problem with these observations and `num_actions` actions in [-1, 1].
inline agents::LearningSpec LearningSpecOf(const Shape& observation,
                                           int64_t num_actions) {
  const auto size = static_cast<size_t>(num_actions);
  return {.task = {.has_pixels = observation.rank() == 3,
                   .observation = observation,
                   .action_minimum = std::vector<double>(size, -1.0),
                   .action_maximum = std::vector<double>(size, 1.0)}};
}

}  // namespace replicant::testing
