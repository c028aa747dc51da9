#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/cpu_backend.h"
#include "engine/kernels/cuda_backend.h"
#include "engine/kernels/reference/reference_backend.h"

namespace replicant::kernels {

std::unique_ptr<Backend> MakeBackend(std::string_view name,
                                     const BackendOptions& options) {
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  if (name == "cpu") return MakeCpuBackend(options);
  if (name == "cuda") return MakeCudaBackend(options);
  throw InvalidArgument(fmt::format("MakeBackend: no backend '{}'; allowed: {}",
                                    name, fmt::join(BuiltBackends(), ", ")));
}

std::vector<std::string> BuiltBackends() {
  std::vector<std::string> names = {"reference", "cpu"};
  if (NumCudaDevices() > 0) names.emplace_back("cuda");
  return names;
}

}  // namespace replicant::kernels
