#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/check.h"
#include "base/tensor/dtype.h"
#include "engine/graph/scalar_program.h"

// Elements of any dtype as double, for kernels whose speed does not matter.
namespace replicant::kernels {

inline double Load(const std::byte* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<double>(reinterpret_cast<const float*>(data)[i]);
    case DType::kF64:
      return reinterpret_cast<const double*>(data)[i];
    case DType::kBF16:
      return static_cast<double>(
          static_cast<float>(reinterpret_cast<const BFloat16*>(data)[i]));
    case DType::kU8:
      return reinterpret_cast<const uint8_t*>(data)[i];
    case DType::kI32:
      return reinterpret_cast<const int32_t*>(data)[i];
    case DType::kI64:
      return static_cast<double>(reinterpret_cast<const int64_t*>(data)[i]);
    case DType::kBool:
      return reinterpret_cast<const uint8_t*>(data)[i];
  }
  REPLICANT_CHECK(false, "unknown dtype {}", static_cast<int>(dtype));
}

// Rounds as graph::RoundToDType().
inline void Store(std::byte* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::kF32:
      reinterpret_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::kF64:
      reinterpret_cast<double*>(data)[i] = value;
      return;
    case DType::kBF16:
      reinterpret_cast<BFloat16*>(data)[i] =
          BFloat16(static_cast<float>(value));
      return;
    case DType::kU8:
      reinterpret_cast<uint8_t*>(data)[i] =
          static_cast<uint8_t>(graph::RoundToDType(value, dtype));
      return;
    case DType::kI32:
      reinterpret_cast<int32_t*>(data)[i] =
          static_cast<int32_t>(graph::RoundToDType(value, dtype));
      return;
    case DType::kI64: {
      // the double nearest to the largest int64_t is 2^63
      const double rounded = graph::RoundToDType(value, dtype);
      reinterpret_cast<int64_t*>(data)[i] =
          rounded >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(rounded);
      return;
    }
    case DType::kBool:
      reinterpret_cast<uint8_t*>(data)[i] = value != 0.0 ? 1 : 0;
      return;
  }
  REPLICANT_CHECK(false, "unknown dtype {}", static_cast<int>(dtype));
}

// Reads and writes a floating element as double.
template <typename T>
double ToDouble(T value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return BFloat16(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// A product with a fused bias, rounded like the separate nodes. In bf16 the
// bias is added before the only rounding (graph::Autocast()).
template <typename T>
double BeforeBias(double product) {
  return std::is_same_v<T, BFloat16> ? product
                                     : ToDouble(FromDouble<T>(product));
}

// Calls function.operator()<T>() with the C++ type of a floating dtype.
template <typename Function>
auto DispatchFloating(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kF64:
      return function.template operator()<double>();
    case DType::kBF16:
      return function.template operator()<BFloat16>();
    default:
      break;
  }
  REPLICANT_CHECK(dtype == DType::kF32, "{} is not floating", DTypeName(dtype));
  return function.template operator()<float>();
}

// Calls function.operator()<In, Out>() for an op that reads floating `in` and
// stores `out`: the same dtype, or f32 for bf16.
template <typename Function>
auto DispatchFloating(DType in, DType out, const Function& function) {
  if (in == DType::kBF16 && out == DType::kF32) {
    return function.template operator()<BFloat16, float>();
  }
  REPLICANT_CHECK(in == out, "{} to {}", DTypeName(in), DTypeName(out));
  return DispatchFloating(
      in, [&]<typename T>() { return function.template operator()<T, T>(); });
}

}  // namespace replicant::kernels
