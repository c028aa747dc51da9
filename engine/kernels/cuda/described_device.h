#pragma once

#include "engine/kernels/cuda/driver.h"

namespace replicant::kernels::cuda {

// The result of cuDeviceGetAttribute() on an H100 SXM (NVIDIA H100 Tensor Core
// GPU Architecture, table 3), for the attributes that the backend asks for;
// CUDA_ERROR_INVALID_VALUE for others.
CUresult H100Attribute(int* value, CUdevice_attribute attribute);

}  // namespace replicant::kernels::cuda
