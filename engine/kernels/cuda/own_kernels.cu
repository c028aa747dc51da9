// The device code of the own kernels. Compiled to an image that the program
// carries (kernel_image.h); nothing here is linked.
#include "engine/kernels/cuda/kernel_list.h"

namespace {

using namespace replicant;
using namespace replicant::kernels::cuda;

template <typename Body>
__device__ void RunElements(const Body& body, int64_t count) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += step) {
    body(i);
  }
}

template <typename Body>
__device__ void RunRows(const Body& body, int64_t count) {
  const Warp warp(static_cast<int>(threadIdx.x % Warp::kSize));
  const int64_t warps_per_block = blockDim.x / Warp::kSize;
  const int64_t step = int64_t{gridDim.x} * warps_per_block;
  for (int64_t row = blockIdx.x * warps_per_block + threadIdx.x / Warp::kSize;
       row < count; row += step) {
    body(warp, row);
  }
}

}  // namespace

#define REPLICANT_ELEMENT_KERNEL(name, ...)                                 \
  extern "C" __global__ void name(const __grid_constant__ __VA_ARGS__ body, \
                                  int64_t count) {                          \
    RunElements(body, count);                                               \
  }
#define REPLICANT_ROW_KERNEL(name, ...)                                     \
  extern "C" __global__ void name(const __grid_constant__ __VA_ARGS__ body, \
                                  int64_t count) {                          \
    RunRows(body, count);                                                   \
  }

REPLICANT_OWN_KERNELS(REPLICANT_ELEMENT_KERNEL, REPLICANT_ROW_KERNEL)
