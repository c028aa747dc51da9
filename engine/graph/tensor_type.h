#pragma once

#include <string>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"

namespace replicant::graph {

// The layout of a tensor's elements in memory.
//
// The empty tag is row-major, the logical layout. Only row-major tensors enter
// or leave a plan. Any other tag ("nChw16c") belongs to the backend that chose
// it (TargetInfo::ChooseLayouts); only that backend can interpret it. A tensor
// in such a layout may take more bytes than its elements.
struct Layout {
  bool is_row_major() const { return tag.empty(); }
  bool operator==(const Layout&) const = default;

  std::string tag;
};

// Everything that a graph knows about a tensor before the run.
struct TensorType {
  bool operator==(const TensorType&) const = default;

  // "f32[3,51]"; "f32[3,51]@tag" where the layout is not row-major.
  std::string ToString() const;

  DType dtype = DType::kF32;
  Shape shape;
  Layout layout = {};
};

// f32, f64 or bf16.
bool IsFloating(DType dtype);

}  // namespace replicant::graph
