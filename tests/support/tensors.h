#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <initializer_list>

#include "base/tensor/host_tensor.h"

namespace replicant::testing {

// A tensor of `shape` that holds `values` in row-major order.
template <typename T>
HostTensor MakeTensor(const Shape& shape, std::initializer_list<T> values) {
  HostTensor tensor(kDTypeOf<T>, shape);
  EXPECT_EQ(tensor.MutableSpan<T>().size(), values.size());
  std::ranges::copy(values, tensor.MutableSpan<T>().begin());
  return tensor;
}

// Any tensor whose bytes a transposed, shifted or cut read cannot leave
// unchanged: element i is 0, 1, ... in the order of memory, modulo 251 for u8
// and modulo 2 for bool.
inline HostTensor CountingTensor(DType dtype, const Shape& shape) {
  HostTensor tensor(dtype, shape);
  const auto fill = [&]<typename T>(T) {
    size_t i = 0;
    for (T& value : tensor.MutableSpan<T>()) {
      if constexpr (std::is_same_v<T, bool>) {
        value = i++ % 2 == 1;
      } else if constexpr (std::is_same_v<T, uint8_t>) {
        value = static_cast<uint8_t>(i++ % 251);
      } else {
        value = static_cast<T>(static_cast<float>(i++));
      }
    }
  };
  switch (dtype) {
    case DType::kF32:
      fill(float{});
      break;
    case DType::kF64:
      fill(double{});
      break;
    case DType::kBF16:
      fill(BFloat16{});
      break;
    case DType::kU8:
      fill(uint8_t{});
      break;
    case DType::kI32:
      fill(int32_t{});
      break;
    case DType::kI64:
      fill(int64_t{});
      break;
    case DType::kBool:
      fill(bool{});
      break;
  }
  return tensor;
}

// Equal in type, shape and every bit of every element.
inline ::testing::AssertionResult IsSameTensor(const HostTensor& a,
                                               const HostTensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) {
    return ::testing::AssertionFailure()
           << DTypeName(a.dtype()) << " " << a.shape().ToString() << " and "
           << DTypeName(b.dtype()) << " " << b.shape().ToString();
  }
  const auto difference = std::ranges::mismatch(a.bytes(), b.bytes());
  if (difference.in1 == a.bytes().end()) return ::testing::AssertionSuccess();
  const auto byte = difference.in1 - a.bytes().begin();
  return ::testing::AssertionFailure()
         << "element " << static_cast<size_t>(byte) / DTypeSize(a.dtype())
         << " differs";
}

}  // namespace replicant::testing
