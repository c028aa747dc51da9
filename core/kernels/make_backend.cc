#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/kernels/backend.h"
#include "core/kernels/cpu/cpu_backend.h"
#include "core/kernels/reference/reference_backend.h"
#include "core/kernels/stub/cuda_backend.h"

namespace replicant::kernels {

std::unique_ptr<Backend> MakeBackend(std::string_view name,
                                     const BackendOptions& options) {
  if (name == "reference") return std::make_unique<ReferenceBackend>();
  if (name == "cpu") return MakeCpuBackend(options);
  if (name == "cuda") return MakeCudaBackend(options);
  throw InvalidArgument(fmt::format("MakeBackend: no backend '{}'; known: {}",
                                    name, fmt::join(BuiltBackends(), ", ")));
}

std::vector<std::string> BuiltBackends() { return {"reference", "cpu"}; }

}  // namespace replicant::kernels
