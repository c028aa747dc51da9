#include "core/kernels/cuda_backend.h"

#include <fmt/format.h>

#include "core/base/error.h"

namespace replicant::kernels {

std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options) {
  throw DeviceError(fmt::format("cuda:{}: this build has no CUDA backend",
                                options.device_index));
}

bool HasCudaDevice() { return false; }

}  // namespace replicant::kernels
