#include "tests/support/fake_cuda/fake_backend.h"

#include <utility>

#include "engine/kernels/cuda/library_backend.h"
#include "tests/support/fake_cuda/host_compiler.h"
#include "tests/support/fake_cuda/host_convolution.h"
#include "tests/support/fake_cuda/host_matmul.h"

namespace replicant::testing {
namespace {

class HostAndDeviceCompiler : public kernels::cuda::SourceCompiler {
 public:
  std::string Compile(const std::string& source,
                      int compute_capability) override {
    nvrtc_->Compile(source, /*compute_capability=*/90);
    return host_->Compile(source, compute_capability);
  }

 private:
  const std::unique_ptr<kernels::cuda::SourceCompiler> nvrtc_ =
      kernels::cuda::LoadNvrtc();
  const std::unique_ptr<kernels::cuda::SourceCompiler> host_ =
      MakeHostSourceCompiler();
};

}  // namespace

std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver, int device_index) {
  return MakeFakeCudaBackend(
      driver, kernels::BackendOptions{.device_index = device_index});
}

std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    const kernels::BackendOptions& options) {
  return kernels::cuda::MakeBackendOn(
      {.driver = driver,
       .compiler = MakeHostSourceCompiler(),
       .matmul = MakeHostMatMul(driver),
       .convolution = MakeHostConvolution(driver),
       .nccl = kernels::cuda::MakeNccl()},
      options);
}

std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    std::shared_ptr<kernels::cuda::NcclLibrary> nccl, int device_index) {
  return MakeFakeCudaBackend(
      driver, std::move(nccl),
      kernels::BackendOptions{.device_index = device_index});
}

std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    std::shared_ptr<kernels::cuda::NcclLibrary> nccl,
    const kernels::BackendOptions& options) {
  return kernels::cuda::MakeBackendOn(
      {.driver = driver,
       .compiler = MakeHostSourceCompiler(),
       .matmul = MakeHostMatMul(driver),
       .convolution = MakeHostConvolution(driver),
       .nccl = std::move(nccl)},
      options);
}

std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    std::shared_ptr<kernels::cuda::SourceCompiler> compiler) {
  return kernels::cuda::MakeBackendOn(
      {.driver = driver,
       .compiler = std::move(compiler),
       .matmul = MakeHostMatMul(driver),
       .convolution = MakeHostConvolution(driver),
       .nccl = kernels::cuda::MakeNccl()},
      {});
}

std::unique_ptr<kernels::cuda::SourceCompiler> MakeHostAndDeviceCompiler() {
  return std::make_unique<HostAndDeviceCompiler>();
}

}  // namespace replicant::testing
