#pragma once

#include <memory>

#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/nccl_library.h"
#include "engine/kernels/cuda/source_compiler.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace replicant::testing {

// The CUDA backend on a fake driver, with every library replaced by host code.
std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver, int device_index = 0);
std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    const kernels::BackendOptions& options);
// The same with NCCL between devices: a library of one "process".
std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    std::shared_ptr<kernels::cuda::NcclLibrary> nccl, int device_index);
std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    std::shared_ptr<kernels::cuda::NcclLibrary> nccl,
    const kernels::BackendOptions& options);
// The same with another compiler, whose images the driver loads.
std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    std::shared_ptr<kernels::cuda::SourceCompiler> compiler);

// Compiles for the host, and each source for an H100 with NVRTC, too, which
// must be installed.
std::unique_ptr<kernels::cuda::SourceCompiler> MakeHostAndDeviceCompiler();

}  // namespace replicant::testing
