#pragma once

#include <cstdint>

#include "base/rng.h"
#include "base/tensor/tensor_view.h"

namespace replicant::learner {

// Fills an input of a benchmark: bytes, classes below 10, or numbers in (0.1,
// 0.9), which suit every input.
inline void FillInput(const MutableTensorView& input, RandomStream& random) {
  if (input.dtype() == DType::kU8) {
    for (uint8_t& x : input.Span<uint8_t>()) {
      x = static_cast<uint8_t>(random.UniformInt(256));
    }
  } else if (input.dtype() == DType::kI32) {
    for (int32_t& x : input.Span<int32_t>()) {
      x = static_cast<int32_t>(random.UniformInt(10));
    }
  } else {
    for (float& x : input.Span<float>()) {
      x = static_cast<float>(random.Uniform(0.1, 0.9));
    }
  }
}

}  // namespace replicant::learner
