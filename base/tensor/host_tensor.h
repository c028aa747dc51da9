#pragma once

#include <cstddef>
#include <span>

#include "base/tensor/dtype.h"
#include "base/tensor/host_buffer.h"
#include "base/tensor/shape.h"
#include "base/tensor/tensor_view.h"

namespace replicant {

// A dense row-major tensor that owns its memory; file readers return it.
// Movable; Clone() makes an explicit copy.
//
// Thread-safety: as a std::vector.
class HostTensor {
 public:
  // Throws std::bad_alloc.
  HostTensor(DType dtype, const Shape& shape,
             HostBuffer::Fill fill = HostBuffer::Fill::kZero)
      : buffer_(static_cast<size_t>(shape.num_elements()) * DTypeSize(dtype),
                fill),
        shape_(shape),
        dtype_(dtype) {}

  // An owned copy of `view`.
  static HostTensor Clone(const TensorView& view);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  size_t size_bytes() const { return buffer_.size_bytes(); }
  std::span<std::byte> bytes() { return buffer_.bytes(); }
  std::span<const std::byte> bytes() const { return buffer_.bytes(); }

  // Borrowed; valid until the tensor is destroyed or assigned to. After a move
  // the new tensor owns the memory.
  TensorView view() const { return {dtype_, shape_, buffer_.data()}; }
  MutableTensorView mutable_view() { return {dtype_, shape_, buffer_.data()}; }

  // As in the views: throw ShapeError for another element type.
  template <typename T>
  std::span<const T> Span() const {
    return view().Span<T>();
  }
  template <typename T>
  std::span<T> MutableSpan() {
    return mutable_view().Span<T>();
  }

 private:
  HostBuffer buffer_;
  Shape shape_;
  DType dtype_;
};

}  // namespace replicant
