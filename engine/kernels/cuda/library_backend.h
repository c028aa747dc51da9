#pragma once

#include <memory>

#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/convolution_library.h"
#include "engine/kernels/cuda/device.h"

namespace replicant::kernels::cuda {

// The CUDA backend on given libraries instead of this machine's libraries:
// tests pass their own. Throws as Device() does.
std::unique_ptr<Backend> MakeBackendOn(const Libraries& libraries,
                                       const BackendOptions& options);

// MakeDescribedCudaBackend() with this library to plan convolutions.
std::unique_ptr<Backend> MakeDescribedBackendOn(
    std::shared_ptr<ConvolutionLibrary> convolution);

}  // namespace replicant::kernels::cuda
