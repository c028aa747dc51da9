#include "base/tensor/tensor_view.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/error.h"

namespace replicant::internal {

void CheckElementType(DType wanted, DType actual, const Shape& shape) {
  if (wanted == actual) return;
  throw ShapeError(
      fmt::format("Span: {} elements requested from a tensor {} of {}",
                  DTypeName(wanted), shape.ToString(), DTypeName(actual)));
}

void CheckTensorData(DType dtype, const Shape& shape, const void* data) {
  REPLICANT_CHECK(data != nullptr || shape.num_elements() == 0,
                  "no data for {} {}", shape.ToString(), DTypeName(dtype));
  REPLICANT_CHECK(reinterpret_cast<uintptr_t>(data) % DTypeSize(dtype) == 0,
                  "data at {} is not aligned for {}", fmt::ptr(data),
                  DTypeName(dtype));
}

size_t SliceOffset(DType dtype, const Shape& shape, int64_t begin,
                   int64_t end) {
  REPLICANT_CHECK(shape.rank() > 0, "slice of a scalar");
  REPLICANT_CHECK(0 <= begin && begin <= end && end <= shape[0],
                  "rows [{}, {}) of {}", begin, end, shape.ToString());
  // an empty tensor has no bytes to skip, whatever its strides say
  if (shape.num_elements() == 0) return 0;
  return static_cast<size_t>(begin * shape.RowMajorStrides()[0]) *
         DTypeSize(dtype);
}

}  // namespace replicant::internal
