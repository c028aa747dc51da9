#pragma once

#include <memory>

#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/convolution_library.h"
#include "engine/kernels/cuda/device.h"

namespace replicant::kernels::cuda {

// The CUDA backend on given libraries instead of those of this machine: tests
// hand in their own. Throws as Device() does.
std::unique_ptr<Backend> MakeBackendOn(const Libraries& libraries,
                                       const BackendOptions& options);

// MakeDescribedCudaBackend() whose convolutions are planned by this library.
std::unique_ptr<Backend> MakeDescribedBackendOn(
    std::shared_ptr<ConvolutionLibrary> convolution);

}  // namespace replicant::kernels::cuda
