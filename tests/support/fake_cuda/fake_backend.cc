#include "tests/support/fake_cuda/fake_backend.h"

#include <utility>

#include "core/kernels/cuda/library_backend.h"
#include "tests/support/fake_cuda/host_compiler.h"
#include "tests/support/fake_cuda/host_convolution.h"
#include "tests/support/fake_cuda/host_matmul.h"

namespace replicant::testing {

std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver, int device_index) {
  return kernels::cuda::MakeBackendOn(
      {.driver = driver,
       .compiler = MakeHostSourceCompiler(),
       .matmul = MakeHostMatMul(driver),
       .convolution = MakeHostConvolution(driver)},
      {.device_index = device_index});
}

std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    std::shared_ptr<kernels::cuda::SourceCompiler> compiler) {
  return kernels::cuda::MakeBackendOn(
      {.driver = driver,
       .compiler = std::move(compiler),
       .matmul = MakeHostMatMul(driver),
       .convolution = MakeHostConvolution(driver)},
      {});
}

std::unique_ptr<kernels::Backend> MakeFakeCudaBackendNamed(
    std::string_view /*name*/, const kernels::BackendOptions& options) {
  return MakeFakeCudaBackend(std::make_shared<FakeDriver>(),
                             options.device_index);
}

RecordingCompiler::RecordingCompiler() : host_(MakeHostSourceCompiler()) {}

std::string RecordingCompiler::Compile(const std::string& source,
                                       int compute_capability) {
  sources_.push_back(source);
  return host_->Compile(source, compute_capability);
}

}  // namespace replicant::testing
