#pragma once

#include <bit>
#include <cstdint>

namespace replicant {

// bfloat16: the upper 16 bits of a float (1 sign, 8 exponent, 7 fraction
// bits), so the range of float with 2 to 3 decimal digits. It is a storage
// type: convert to float to compute.
//
// From float it rounds to nearest, ties to even, as hardware does; a value
// beyond the largest bfloat16 becomes infinity, NaN stays a (quiet) NaN and
// keeps its sign. To float it is exact.
struct BFloat16 {
  uint16_t bits;

  BFloat16() = default;
  explicit constexpr BFloat16(float value) : bits(Round(value)) {}
  static constexpr BFloat16 FromBits(uint16_t bits) {
    BFloat16 result(0.0F);
    result.bits = bits;
    return result;
  }

  explicit constexpr operator float() const {
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }

 private:
  static constexpr uint16_t Round(float value) {
    const uint32_t word = std::bit_cast<uint32_t>(value);
    // the payload of a NaN may lie in the dropped bits: without the quiet bit
    // it would turn into infinity
    const bool is_nan = (word & 0x7FFFFFFFU) > 0x7F800000U;
    if (is_nan) return static_cast<uint16_t>((word >> 16) | 0x0040U);
    // half of the last kept place, less one if that place is even
    const uint32_t rounding = 0x7FFFU + ((word >> 16) & 1U);
    return static_cast<uint16_t>((word + rounding) >> 16);
  }
};
static_assert(sizeof(BFloat16) == 2);

}  // namespace replicant
