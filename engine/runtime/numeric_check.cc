#include "engine/runtime/numeric_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace replicant::runtime {
namespace {

// No branches, and blocks of a constant size, so that g++ vectorises it.
template <typename T>
bool AreFinite(std::span<const T> elements) {
  constexpr size_t kBlock = 64;
  const auto count_bad = [](const T* x, size_t n) {
    uint32_t count = 0;
    for (size_t i = 0; i < n; ++i) {
      // NaN is not <= anything
      count += std::abs(x[i]) <= std::numeric_limits<T>::max() ? 0U : 1U;
    }
    return count;
  };
  uint32_t num_bad = 0;
  const size_t whole = elements.size() / kBlock * kBlock;
  for (size_t i = 0; i < whole; i += kBlock) {
    num_bad += count_bad(elements.data() + i, kBlock);
  }
  num_bad += count_bad(elements.data() + whole, elements.size() - whole);
  return num_bad == 0;
}

template <typename T>
std::optional<int64_t> FindIn(std::span<const T> elements) {
  if (AreFinite(elements)) return std::nullopt;
  const auto found =
      std::ranges::find_if(elements, [](T x) { return !std::isfinite(x); });
  return found - elements.begin();
}

template <typename T>
std::optional<int64_t> FindOutside(std::span<const T> elements,
                                   int64_t num_classes) {
  const auto found = std::ranges::find_if(
      elements, [=](T x) { return x < 0 || x >= num_classes; });
  if (found == elements.end()) return std::nullopt;
  return found - elements.begin();
}

// An element as text; NaN has no sign there.
std::string ElementText(TensorView tensor, int64_t element) {
  const auto i = static_cast<size_t>(element);
  const auto real = [](double x) {
    return std::isnan(x) ? std::string("nan") : fmt::format("{}", x);
  };
  switch (tensor.dtype()) {
    case DType::kF32:
      return real(static_cast<double>(tensor.Span<float>()[i]));
    case DType::kF64:
      return real(tensor.Span<double>()[i]);
    case DType::kBF16:
      return real(
          static_cast<double>(static_cast<float>(tensor.Span<BFloat16>()[i])));
    case DType::kI32:
      return fmt::format("{}", tensor.Span<int32_t>()[i]);
    default:
      return fmt::format("{}", tensor.Span<int64_t>()[i]);
  }
}

}  // namespace

std::optional<int64_t> FindNotFinite(TensorView tensor) {
  if (tensor.dtype() == DType::kF32) return FindIn(tensor.Span<float>());
  if (tensor.dtype() == DType::kF64) return FindIn(tensor.Span<double>());
  if (tensor.dtype() != DType::kBF16) return std::nullopt;
  const auto elements = tensor.Span<BFloat16>();
  const auto found = std::ranges::find_if(elements, [](BFloat16 x) {
    return !std::isfinite(static_cast<float>(x));
  });
  if (found == elements.end()) return std::nullopt;
  return found - elements.begin();
}

void CheckBatchTensor(int64_t batch, const std::string& input,
                      TensorView tensor, int64_t num_classes) {
  std::string wanted = "finite numbers";
  std::optional<int64_t> element = FindNotFinite(tensor);
  if (num_classes > 0) {
    wanted = fmt::format("0 to {}", num_classes - 1);
    element = tensor.dtype() == DType::kI32
                  ? FindOutside(tensor.Span<int32_t>(), num_classes)
                  : FindOutside(tensor.Span<int64_t>(), num_classes);
  }
  if (!element) return;
  const int64_t rows = tensor.shape().rank() == 0 ? 1 : tensor.shape()[0];
  const int64_t row_size = tensor.shape().num_elements() / rows;
  throw NumericError(fmt::format(
      "batch {}: input '{}': row {}{} is {}; want {}", batch, input,
      *element / row_size,
      row_size == 1 ? std::string()
                    : fmt::format(", element {},", *element % row_size),
      ElementText(tensor, *element), wanted));
}

}  // namespace replicant::runtime
