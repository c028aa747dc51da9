#pragma once

#include <memory>
#include <string>

namespace replicant::kernels::cuda {

// Compiles generated CUDA C++ to an image for Driver::ModuleLoadData().
//
// Thread-safety: any thread.
class SourceCompiler {
 public:
  virtual ~SourceCompiler() = default;

  // `compute_capability` is 90 for 9.0. Throws DeviceError with the compiler's
  // log and the source.
  virtual std::string Compile(const std::string& source,
                              int compute_capability) = 0;
};

// NVRTC, found at run time. Throws DeviceError if it is missing.
//
// Products and sums are not contracted to fused multiply-adds, so that a fused
// chain gives the bits of the nodes that it replaces.
std::unique_ptr<SourceCompiler> LoadNvrtc();

}  // namespace replicant::kernels::cuda
