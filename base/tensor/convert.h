#pragma once

#include "base/tensor/host_tensor.h"

namespace replicant {

// Returns a tensor of kF32, kF64 or kBF16 as `dtype`, kF32 or kF64, rounded to
// the nearest number.
HostTensor ConvertFloating(const TensorView& tensor, DType dtype);

}  // namespace replicant
