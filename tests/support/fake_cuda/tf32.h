#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace replicant::testing {

// An f32 with 10 bits of fraction: to nearest, ties away from zero, as the
// instruction cvt.rna.tf32.f32 rounds.
inline double RoundToTF32(double value) {
  if (!std::isfinite(value)) return value;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>((bits + 0x1000U) & ~uint32_t{0x1FFF});
}

}  // namespace replicant::testing
