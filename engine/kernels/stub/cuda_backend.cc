#include "engine/kernels/cuda_backend.h"

#include <fmt/format.h>

#include "base/error.h"

namespace replicant::kernels {

std::unique_ptr<Backend> MakeCudaBackend(const BackendOptions& options) {
  throw DeviceError(fmt::format("cuda:{}: this build has no CUDA backend",
                                options.device_index));
}

std::unique_ptr<Backend> MakeDescribedCudaBackend() {
  throw DeviceError("cuda: this build has no CUDA backend");
}

int NumCudaDevices() { return 0; }

}  // namespace replicant::kernels
