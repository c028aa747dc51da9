#pragma once

#include <memory>

#include "engine/kernels/backend.h"

namespace replicant::kernels {

// The CUDA backend, which drives one NVIDIA GPU. engine/kernels/cuda computes
// in f32, TF32 and bf16; in a build without the CUDA toolkit,
// engine/kernels/stub replaces it and throws.
//
// Throws DeviceError in one line if the build, the machine or its driver cannot
// run it.
std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options);

// The CUDA backend for a described H100, without a device: its plans can be
// compiled and read. Launches do nothing, and results are zeros. Workspaces
// of libraries count as empty. Throws DeviceError in a build without the
// backend.
std::unique_ptr<Backend> MakeDescribedCudaBackend();

// Devices for the CUDA backend that this process sees; 0 in a build without it.
int NumCudaDevices();

}  // namespace replicant::kernels
