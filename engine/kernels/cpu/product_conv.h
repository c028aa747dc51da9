#pragma once

#include <memory>

#include "engine/kernels/cpu/cpu_kernels.h"

// Convolutions as oneDNN's matrix products: of x [P, C KH KW], one row for the
// pixels of each window, and the weights w [O, C KH KW] as they are stored:
//
//   y = x w^T    dx = y w    dw = y^T x
//
// No weights are packed, and no gradient is unpacked. Windows of several pixels
// are not supported for the gradient of the images.
namespace replicant::kernels::cpu {

// Whether this method is faster for a Conv2d or one of its gradients.
bool PrefersProduct(const CpuRequest& request);

// Requires PrefersProduct(request) (checked).
std::unique_ptr<Kernel> MakeProductConv(const CpuRequest& request);

}  // namespace replicant::kernels::cpu
