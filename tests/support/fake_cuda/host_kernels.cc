#include "tests/support/fake_cuda/host_kernels.h"

#include "engine/kernels/cuda/kernel_list.h"

namespace replicant::testing {
namespace {

// the list of kernels names their bodies without it
using namespace kernels::cuda;  // NOLINT(google-build-using-namespace)

template <typename Body>
void RunElements(const void* argument, int64_t count) {
  const Body& body = *static_cast<const Body*>(argument);
  for (int64_t i = 0; i < count; ++i) body(i);
}

template <typename Body>
void RunRows(const void* argument, int64_t count) {
  const Body& body = *static_cast<const Body*>(argument);
  for (int64_t row = 0; row < count; ++row) body(Warp(), row);
}

}  // namespace

const std::map<std::string_view, HostKernelFunction>& HostKernels() {
#define REPLICANT_ELEMENT_ROW(name, ...) {#name, &RunElements<__VA_ARGS__>},
#define REPLICANT_ROW_ROW(name, ...) {#name, &RunRows<__VA_ARGS__>},
  static const std::map<std::string_view, HostKernelFunction> kernels = {
      REPLICANT_OWN_KERNELS(REPLICANT_ELEMENT_ROW, REPLICANT_ROW_ROW)};
#undef REPLICANT_ELEMENT_ROW
#undef REPLICANT_ROW_ROW
  return kernels;
}

}  // namespace replicant::testing
