#pragma once

#include <memory>

#include "core/kernels/backend.h"

namespace replicant::kernels {

// The CUDA backend, which drives one NVIDIA GPU. core/kernels/cuda computes in
// f32, TF32 and bf16; in a build without the CUDA toolkit core/kernels/stub
// stands in its place, which says so.
//
// Throws DeviceError in one line if the build, the machine or its driver cannot
// run it.
std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options);

// The CUDA backend for an H100 that is described and not there: its plans can
// be compiled and read. What runs does nothing, and results are zeros.
// Workspaces of libraries count as empty. Throws DeviceError in a build without
// the backend.
std::unique_ptr<Backend> MakeDescribedCudaBackend();

// Whether this build has the CUDA backend and this machine a device for it.
bool HasCudaDevice();

}  // namespace replicant::kernels
