#pragma once

#include <string>
#include <string_view>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"

namespace replicant {

// The dict literal of an .npy file, for example
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 51), }
struct NpyHeader {
  DType dtype = DType::kF32;
  Shape shape;
  bool is_fortran_order = false;
  bool is_big_endian = false;
};

// Parses the dict literal after the length field. The parser accepts exactly
// these three keys in any order, with one string, one of True and False, and
// one tuple of whole numbers; it evaluates nothing. Throws IoError, starting
// with `where`, for any other text.
NpyHeader ParseNpyHeader(std::string_view text, const std::string& where);

// The dict literal of a row-major, little-endian tensor, without padding.
// Throws InvalidArgument for kBF16, which numpy does not have.
std::string FormatNpyHeader(DType dtype, const Shape& shape);

}  // namespace replicant
