#pragma once

namespace replicant::kernels::cuda {

// The device code of own_kernels.cu, a fat binary for the architectures of the
// build, for Driver::ModuleLoadData().
const void* OwnKernelImage();

}  // namespace replicant::kernels::cuda
