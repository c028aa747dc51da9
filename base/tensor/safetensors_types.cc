#include "base/tensor/safetensors_types.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"

namespace replicant {
namespace {

// Types of equal name in memory come first.
constexpr SafetensorsType kTypes[] = {
    {"F32", 32, DType::kF32},
    {"F64", 64, DType::kF64},
    {"BF16", 16, DType::kBF16},
    {"U8", 8, DType::kU8},
    {"I32", 32, DType::kI32},
    {"I64", 64, DType::kI64},
    {"BOOL", 8, DType::kBool},
    {"F16", 16, DType::kF32},
    {"I8", 8, DType::kI32},
    {"I16", 16, DType::kI32},
    {"U16", 16, DType::kI32},
    {"U32", 32, DType::kI64},
    {"U64", 64, DType::kI64},
    {"F8_E4M3", 8, DType::kF32},
    {"F8_E5M2", 8, DType::kF32},
    {"F8_E8M0", 8, DType::kF32},
    {"F8_E4M3FNUZ", 8, DType::kF32},
    {"F8_E5M2FNUZ", 8, DType::kF32},
    // no real number, or several to a byte in an order that differs by program
    {"C64", 64},
    {"F4", 4},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6}};

// The codes of a small float that are no finite number.
enum class Specials {
  kIeee,  // the largest exponent: infinities and NaN
  kFn,    // the largest exponent and mantissa: NaN
  kFnuz   // -0: NaN
};

struct FloatFormat {
  std::string_view name;
  int exponent_bits;
  int mantissa_bits;
  int bias;
  Specials specials;
};

// Sources: IEEE 754 binary16; arXiv:2209.05433 (E4M3, E5M2); the FNUZ types of
// StableHLO's specification.
constexpr FloatFormat kFloats[] = {{"F16", 5, 10, 15, Specials::kIeee},
                                   {"F8_E5M2", 5, 2, 15, Specials::kIeee},
                                   {"F8_E4M3", 4, 3, 7, Specials::kFn},
                                   {"F8_E4M3FNUZ", 4, 3, 8, Specials::kFnuz},
                                   {"F8_E5M2FNUZ", 5, 2, 16, Specials::kFnuz}};

float Decode(uint32_t code, const FloatFormat& format) {
  const uint32_t top = (1U << static_cast<unsigned>(format.exponent_bits)) - 1;
  const uint32_t mantissas = 1U << static_cast<unsigned>(format.mantissa_bits);
  const uint32_t mantissa = code % mantissas;
  const uint32_t exponent = code / mantissas & top;
  const bool is_negative = code / mantissas > top;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  switch (format.specials) {
    case Specials::kIeee:
      if (exponent == top && mantissa != 0) return kNan;
      if (exponent == top) {
        constexpr float kInfinity = std::numeric_limits<float>::infinity();
        return is_negative ? -kInfinity : kInfinity;
      }
      break;
    case Specials::kFn:
      if (exponent == top && mantissa == mantissas - 1) return kNan;
      break;
    case Specials::kFnuz:
      if (is_negative && exponent == 0 && mantissa == 0) return kNan;
  }
  // below the smallest normal number there is no leading one
  const int shift = std::max(static_cast<int>(exponent), 1) - format.bias -
                    format.mantissa_bits;
  const auto digits =
      static_cast<float>(mantissa + (exponent == 0 ? 0 : mantissas));
  const float value = std::ldexp(digits, shift);
  return is_negative ? -value : value;
}

// A power of two (OCP Microscaling Formats 1.0, section 5.4.1).
float DecodeE8M0(uint32_t code) {
  return code == 0xffU ? std::numeric_limits<float>::quiet_NaN()
                       : std::ldexp(1.0F, static_cast<int>(code) - 127);
}

// Writes `convert` of each element of type From.
template <typename From, typename To, typename Convert>
void ConvertAll(std::span<const std::byte> from, std::span<To> to,
                Convert convert) {
  REPLICANT_CHECK_EQ(from.size(), to.size() * sizeof(From));
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof(From), sizeof(From));
    to[i] = convert(value);
  }
}

void ConvertFloats(const SafetensorsType& type, std::span<const std::byte> from,
                   std::span<float> to) {
  if (type.name == "F8_E8M0") {
    ConvertAll<uint8_t>(from, to, &DecodeE8M0);
    return;
  }
  const FloatFormat& format =
      *std::ranges::find(kFloats, type.name, &FloatFormat::name);
  const auto decode = [&](uint32_t code) { return Decode(code, format); };
  if (type.bits == 16) {
    ConvertAll<uint16_t>(from, to, decode);
  } else {
    ConvertAll<uint8_t>(from, to, decode);
  }
}

}  // namespace

const SafetensorsType* FindSafetensorsType(std::string_view name) {
  const auto* found = std::ranges::find(kTypes, name, &SafetensorsType::name);
  return found == std::end(kTypes) ? nullptr : found;
}

std::string ReadableSafetensorsTypes() {
  std::string names;
  for (const SafetensorsType& type : kTypes) {
    if (!type.dtype) continue;
    if (!names.empty()) names += ", ";
    names += type.name;
  }
  return names;
}

std::string_view SafetensorsDTypeName(DType dtype) {
  return std::ranges::find(kTypes, dtype, &SafetensorsType::dtype)->name;
}

void ConvertFromSafetensors(const SafetensorsType& type,
                            std::span<const std::byte> from,
                            const MutableTensorView& to,
                            const std::string& where) {
  const auto widen = [](auto value) { return int32_t{value}; };
  if (*type.dtype == DType::kF32) {
    ConvertFloats(type, from, to.Span<float>());
  } else if (type.name == "I8") {
    ConvertAll<int8_t>(from, to.Span<int32_t>(), widen);
  } else if (type.name == "I16") {
    ConvertAll<int16_t>(from, to.Span<int32_t>(), widen);
  } else if (type.name == "U16") {
    ConvertAll<uint16_t>(from, to.Span<int32_t>(), widen);
  } else if (type.name == "U32") {
    ConvertAll<uint32_t>(from, to.Span<int64_t>(),
                         [](uint32_t value) { return int64_t{value}; });
  } else {
    ConvertAll<uint64_t>(from, to.Span<int64_t>(), [&](uint64_t value) {
      constexpr auto kMax =
          static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      if (value > kMax) {
        throw IoError(
            fmt::format("{}: value {} of type U64; at most {} is "
                        "allowed",
                        where, value, kMax));
      }
      return static_cast<int64_t>(value);
    });
  }
}

}  // namespace replicant
