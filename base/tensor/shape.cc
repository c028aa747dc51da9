#include "base/tensor/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace replicant {
namespace {

std::string ToText(std::span<const int64_t> dims) {
  return fmt::format("[{}]", fmt::join(dims, ","));
}

}  // namespace

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) {
  if (dims.size() > kMaxRank) {
    throw ShapeError(fmt::format("Shape: {} dimensions; at most {} are allowed",
                                 dims.size(), int{kMaxRank}));
  }
  int64_t non_zero_product = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) {
      throw ShapeError(
          fmt::format("Shape: {} has a negative dimension", ToText(dims)));
    }
    if (dim == 0) {
      num_elements_ = 0;
      continue;
    }
    if (dim > kMaxElements / non_zero_product) {
      throw ShapeError(
          fmt::format("Shape: {} has more than 2^60 - 1 elements (zero "
                      "dimensions not counted)",
                      ToText(dims)));
    }
    non_zero_product *= dim;
  }
  num_elements_ *= non_zero_product;
  rank_ = static_cast<int32_t>(dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
}

int64_t Shape::operator[](int axis) const {
  REPLICANT_CHECK(axis >= 0 && axis < rank_, "axis {} of {}", axis, ToString());
  return dims_[static_cast<size_t>(axis)];
}

Shape::Strides Shape::RowMajorStrides() const {
  Strides strides{};
  int64_t stride = 1;
  for (size_t axis = dims().size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= std::max<int64_t>(dims_[axis], 1);
  }
  return strides;
}

Shape Shape::WithoutLeading() const {
  REPLICANT_CHECK(rank_ > 0, "a scalar has no leading dimension");
  return Shape(dims().subspan(1));
}

Shape Shape::WithLeading(int64_t leading) const {
  REPLICANT_CHECK(rank_ > 0, "a scalar has no leading dimension");
  std::array<int64_t, kMaxRank> dims = dims_;
  dims[0] = leading;
  return Shape(std::span(dims).first(static_cast<size_t>(rank_)));
}

std::string Shape::ToString() const { return ToText(dims()); }

}  // namespace replicant
