#pragma once

#include <cstddef>
#include <string>

#include "base/tensor/dtype.h"
#include "base/tensor/shape.h"

namespace replicant::graph {

// Everything that a graph knows about a tensor before the run. Its elements lie
// row by row.
struct TensorType {
  bool operator==(const TensorType&) const = default;

  // "f32[3,51]".
  std::string ToString() const;
  size_t SizeBytes() const;

  DType dtype = DType::kF32;
  Shape shape;
};

// f32, f64 or bf16.
bool IsFloating(DType dtype);

}  // namespace replicant::graph
