#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace replicant {

// The dimensions of a tensor, outermost first: a small value that never
// allocates.
//
//   Shape({3, 51})  two dimensions, 153 elements
//   Shape({})       a scalar: rank 0, one element
//   Shape({0, 51})  empty: no elements
//
// Every Shape satisfies: rank <= 8, no dimension is negative, and the product
// of the non-zero dimensions is at most kMaxElements. So element counts,
// strides and sizes in bytes of any DType fit an int64_t, and the code that
// computes them needs no overflow checks.
class Shape {
 public:
  static constexpr int kMaxRank = 8;
  // 2^60 - 1 elements of 8 bytes are the most that int64_t can count.
  static constexpr int64_t kMaxElements = (int64_t{1} << 60) - 1;

  // Row-major strides in elements; the first rank() are used.
  using Strides = std::array<int64_t, kMaxRank>;

  // A scalar.
  Shape() = default;
  // Throws ShapeError if `dims` break a limit above.
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  // 0 <= axis < rank() (checked; aborts).
  int64_t operator[](int axis) const;
  std::span<const int64_t> dims() const {
    return {dims_.data(), static_cast<size_t>(rank_)};
  }
  // 1 for a scalar.
  int64_t num_elements() const { return num_elements_; }

  // strides[a] is how many elements lie between neighbours along axis a:
  // the product of the dimensions after it, a zero among them counted as one.
  Strides RowMajorStrides() const;

  // This shape without its leading dimension: the shape of one row. rank() > 0
  // (checked).
  Shape WithoutLeading() const;
  // This shape with another leading dimension. rank() > 0 (checked). Throws
  // ShapeError as the constructor does.
  Shape WithLeading(int64_t leading) const;

  // "[3,51]", "[]".
  std::string ToString() const;

  bool operator==(const Shape&) const = default;

 private:
  // dimensions beyond rank_ stay zero, so that == may compare them all
  std::array<int64_t, kMaxRank> dims_{};
  int64_t num_elements_ = 1;
  int32_t rank_ = 0;
};

}  // namespace replicant
