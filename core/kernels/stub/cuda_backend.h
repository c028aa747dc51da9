#pragma once

#include <memory>

#include "core/kernels/backend.h"

namespace replicant::kernels {

// The CUDA backend of a build that has none: says so. A build with CUDA links
// core/kernels/cuda in its place.
//
// Always throws DeviceError.
std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options);

}  // namespace replicant::kernels
