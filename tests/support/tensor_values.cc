#include "tests/support/tensor_values.h"

#include <string>

#include "base/check.h"

namespace replicant::testing {
namespace {

template <typename Function>
void Dispatch(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kF32:
      function.template operator()<float>();
      return;
    case DType::kF64:
      function.template operator()<double>();
      return;
    case DType::kBF16:
      function.template operator()<BFloat16>();
      return;
    case DType::kU8:
      function.template operator()<uint8_t>();
      return;
    case DType::kI32:
      function.template operator()<int32_t>();
      return;
    case DType::kI64:
      function.template operator()<int64_t>();
      return;
    case DType::kBool:
      function.template operator()<bool>();
      return;
  }
}

}  // namespace

HostTensor Values(DType dtype, const Shape& shape,
                  const std::vector<double>& values) {
  REPLICANT_CHECK_EQ(static_cast<int64_t>(values.size()), shape.num_elements());
  HostTensor tensor(dtype, shape);
  Dispatch(dtype, [&]<typename T>() {
    const auto elements = tensor.MutableSpan<T>();
    for (size_t i = 0; i < values.size(); ++i) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        elements[i] = BFloat16(static_cast<float>(values[i]));
      } else {
        elements[i] = static_cast<T>(values[i]);
      }
    }
  });
  return tensor;
}

HostTensor RandomNormal(DType dtype, const Shape& shape, uint64_t seed) {
  RandomStream stream(seed, "test/normal");
  std::vector<double> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    values.push_back(stream.Normal());
  }
  return Values(dtype, shape, values);
}

HostTensor RandomUniform(DType dtype, const Shape& shape, double low,
                         double high, uint64_t seed) {
  RandomStream stream(seed, "test/uniform");
  std::vector<double> values;
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    values.push_back(stream.Uniform(low, high));
  }
  return Values(dtype, shape, values);
}

HostTensor RandomDistribution(DType dtype, int64_t rows, int64_t columns,
                              uint64_t seed) {
  RandomStream stream(seed, "test/distribution");
  std::vector<double> values;
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0.0;
    for (int64_t k = 0; k < columns; ++k) {
      values.push_back(stream.Uniform(0.1, 1.0));
      sum += values.back();
    }
    for (int64_t k = 0; k < columns; ++k) {
      values[static_cast<size_t>(row * columns + k)] /= sum;
    }
  }
  return Values(dtype, Shape({rows, columns}), values);
}

std::vector<double> ToDoubles(TensorView tensor) {
  std::vector<double> values;
  Dispatch(tensor.dtype(), [&]<typename T>() {
    for (const T element : tensor.Span<T>()) {
      if constexpr (std::is_same_v<T, BFloat16>) {
        values.push_back(static_cast<double>(static_cast<float>(element)));
      } else {
        values.push_back(static_cast<double>(element));
      }
    }
  });
  return values;
}

}  // namespace replicant::testing
