#include "base/tensor/convert.h"

#include <algorithm>

#include "base/check.h"

namespace replicant {
namespace {

template <typename From, typename To>
void Convert(std::span<const From> from, std::span<To> to) {
  std::ranges::transform(from, to.begin(), [](From value) {
    if constexpr (std::is_same_v<From, BFloat16>) {
      return static_cast<To>(static_cast<float>(value));
    } else {
      return static_cast<To>(value);
    }
  });
}

template <typename To>
void ConvertTo(const TensorView& tensor, std::span<To> to) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return Convert(tensor.Span<float>(), to);
    case DType::kF64:
      return Convert(tensor.Span<double>(), to);
    default:
      // Span() refuses any other type
      return Convert(tensor.Span<BFloat16>(), to);
  }
}

}  // namespace

HostTensor ConvertFloating(const TensorView& tensor, DType dtype) {
  REPLICANT_CHECK(dtype == DType::kF32 || dtype == DType::kF64, "{}",
                  DTypeName(dtype));
  HostTensor converted(dtype, tensor.shape(), HostBuffer::Fill::kUninitialised);
  if (dtype == DType::kF64) {
    ConvertTo(tensor, converted.MutableSpan<double>());
  } else {
    ConvertTo(tensor, converted.MutableSpan<float>());
  }
  return converted;
}

}  // namespace replicant
