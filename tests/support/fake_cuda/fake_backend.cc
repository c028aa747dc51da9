#include "tests/support/fake_cuda/fake_backend.h"

#include "core/kernels/cuda/library_backend.h"
#include "tests/support/fake_cuda/host_compiler.h"
#include "tests/support/fake_cuda/host_matmul.h"

namespace replicant::testing {

std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver, int device_index) {
  return kernels::cuda::MakeBackendOn({.driver = driver,
                                       .compiler = MakeHostSourceCompiler(),
                                       .matmul = MakeHostMatMul(driver)},
                                      {.device_index = device_index});
}

std::unique_ptr<kernels::Backend> MakeFakeCudaBackendNamed(
    std::string_view /*name*/, const kernels::BackendOptions& options) {
  return MakeFakeCudaBackend(std::make_shared<FakeDriver>(),
                             options.device_index);
}

}  // namespace replicant::testing
