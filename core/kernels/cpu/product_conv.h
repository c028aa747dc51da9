#pragma once

#include <memory>

#include "core/kernels/cpu/cpu_kernels.h"

// Convolutions with windows of one pixel as matrix products of oneDNN, of the
// pixels x [P, C] that the windows see and the weights w [O, C] as they lie:
//
//   y = x w^T    dx = y w    dw = y^T x
//
// so that no weights are packed and no gradient is unpacked.
namespace replicant::kernels::cpu {

// Whether Conv2d or one of its gradients is such a convolution, without padding
// and of such sizes that this is the faster way.
bool PrefersProduct(const CpuRequest& request);

// PrefersProduct(request) (checked).
std::unique_ptr<Kernel> MakePointwiseConv(const CpuRequest& request);

}  // namespace replicant::kernels::cpu
