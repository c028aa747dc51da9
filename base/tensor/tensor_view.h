#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"

namespace replicant {

namespace internal {

// Throws ShapeError, naming both, unless they are equal.
void CheckElementType(DType wanted, DType actual, const Shape& shape);
// Aborts unless `data` may hold elements of `dtype`: aligned to their size, and
// not null unless there are none.
void CheckTensorData(DType dtype, const Shape& shape, const void* data);
// Offset in bytes of row `begin` along the leading dimension. Aborts unless
// rank > 0 and 0 <= begin <= end <= shape[0].
size_t SliceOffset(DType dtype, const Shape& shape, int64_t begin, int64_t end);

}  // namespace internal

// A borrowed dense row-major tensor in host memory. Valid as long as that
// memory; pass it by value or const reference. Byte is std::byte, or
// const std::byte for a view that only reads.
//
// A view may be empty (no elements); its data may then be null.
//
// Thread-safety: as the memory.
template <typename Byte>
class BasicTensorView {
  static constexpr bool kReadsOnly = std::is_const_v<Byte>;
  template <typename T>
  using Element = std::conditional_t<kReadsOnly, const T, T>;
  struct NoView {};
  using Writable =
      std::conditional_t<kReadsOnly, BasicTensorView<std::byte>, NoView>;

 public:
  // `data` holds shape.num_elements() elements and is aligned to their size
  // (checked).
  BasicTensorView(DType dtype, const Shape& shape, Element<void>* data)
      : data_(static_cast<Byte*>(data)), shape_(shape), dtype_(dtype) {
    internal::CheckTensorData(dtype, shape, data);
  }
  // implicit, like T* to const T*
  // NOLINTNEXTLINE(google-explicit-constructor)
  BasicTensorView(const Writable& view)
      : data_(view.data()), shape_(view.shape()), dtype_(view.dtype()) {}

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  Byte* data() const { return data_; }
  size_t size_bytes() const {
    return static_cast<size_t>(shape_.num_elements()) * DTypeSize(dtype_);
  }
  std::span<Byte> bytes() const { return {data_, size_bytes()}; }

  // The elements in row-major order. Throws ShapeError unless T is the type
  // of dtype().
  template <typename T>
  std::span<Element<T>> Span() const {
    internal::CheckElementType(kDTypeOf<T>, dtype_, shape_);
    return {reinterpret_cast<Element<T>*>(data_),
            static_cast<size_t>(shape_.num_elements())};
  }

  // Rows [begin, end) of the leading dimension, which is kept.
  // 0 <= begin <= end <= shape()[0] (checked).
  BasicTensorView Slice(int64_t begin, int64_t end) const {
    const size_t offset = internal::SliceOffset(dtype_, shape_, begin, end);
    return {dtype_, shape_.WithLeading(end - begin), data_ + offset};
  }
  // Row `index`, without the leading dimension. 0 <= index < shape()[0]
  // (checked).
  BasicTensorView operator[](int64_t index) const {
    const size_t offset =
        internal::SliceOffset(dtype_, shape_, index, index + 1);
    return {dtype_, shape_.WithoutLeading(), data_ + offset};
  }

 private:
  Byte* data_;
  Shape shape_;
  DType dtype_;
};

using MutableTensorView = BasicTensorView<std::byte>;
using TensorView = BasicTensorView<const std::byte>;

// A tensor with its name in a file.
struct NamedTensorView {
  std::string name;
  TensorView tensor;
};

}  // namespace replicant
