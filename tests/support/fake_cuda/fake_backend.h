#pragma once

#include <memory>
#include <string_view>

#include "core/kernels/backend.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace replicant::testing {

// The CUDA backend on a fake driver, with every library replaced by host code.
std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver, int device_index = 0);

// The same as a BackendFactory, with a driver of its own, whatever the name.
std::unique_ptr<kernels::Backend> MakeFakeCudaBackendNamed(
    std::string_view name, const kernels::BackendOptions& options);

}  // namespace replicant::testing
