#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/kernels/backend.h"
#include "core/kernels/cuda/source_compiler.h"
#include "tests/support/fake_cuda/fake_driver.h"

namespace replicant::testing {

// The CUDA backend on a fake driver, with every library replaced by host code.
std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver, int device_index = 0);
// The same with another compiler, whose images the driver loads.
std::unique_ptr<kernels::Backend> MakeFakeCudaBackend(
    const std::shared_ptr<FakeDriver>& driver,
    std::shared_ptr<kernels::cuda::SourceCompiler> compiler);

// The same as a BackendFactory, with a driver of its own, whatever the name.
std::unique_ptr<kernels::Backend> MakeFakeCudaBackendNamed(
    std::string_view name, const kernels::BackendOptions& options);

// HostSourceCompiler, which also keeps the sources.
class RecordingCompiler : public kernels::cuda::SourceCompiler {
 public:
  RecordingCompiler();

  std::string Compile(const std::string& source,
                      int compute_capability) override;
  // In the order of compilation.
  const std::vector<std::string>& sources() const { return sources_; }

 private:
  std::unique_ptr<kernels::cuda::SourceCompiler> host_;
  std::vector<std::string> sources_;
};

}  // namespace replicant::testing
