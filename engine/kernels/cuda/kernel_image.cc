#include "engine/kernels/cuda/kernel_image.h"

// made of the compiled own_kernels.cu
#include <own_kernels_image.inc>

namespace replicant::kernels::cuda {

const void* OwnKernelImage() { return kOwnKernelsImage; }

}  // namespace replicant::kernels::cuda
