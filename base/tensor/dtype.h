#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/tensor/bfloat16.h"

namespace replicant {

// Element type of a tensor. All are little-endian in memory and in files; a
// kBool element is one byte, 0 or 1.
enum class DType : uint8_t { kF32, kF64, kBF16, kU8, kI32, kI64, kBool };

inline constexpr std::array kAllDTypes = {
    DType::kF32, DType::kF64, DType::kBF16, DType::kU8,
    DType::kI32, DType::kI64, DType::kBool};

// Size of one element in bytes: 1, 2, 4 or 8.
size_t DTypeSize(DType dtype);

// "f32", "f64", "bf16", "u8", "i32", "i64", "bool".
std::string_view DTypeName(DType dtype);

// The inverse of DTypeName(); std::nullopt for any other text.
std::optional<DType> ParseDType(std::string_view name);

// kDTypeOf<float> is DType::kF32, and so on; no other C++ type compiles.
template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType kValue = DType::kF64;
};
template <>
struct DTypeOf<BFloat16> {
  static constexpr DType kValue = DType::kBF16;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType kValue = DType::kU8;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType kValue = DType::kI64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType kValue = DType::kBool;
};
template <typename T>
inline constexpr DType kDTypeOf = DTypeOf<T>::kValue;

}  // namespace replicant
