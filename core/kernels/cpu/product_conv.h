#pragma once

#include <memory>

#include "core/kernels/cpu/cpu_kernels.h"

// Convolutions as matrix products of oneDNN, of what their windows see, one row
// each, x [P, C KH KW], and the weights w [O, C KH KW] as they lie:
//
//   y = x w^T    dx = y w    dw = y^T x
//
// so that no weights are packed and no gradient is unpacked. Of windows of
// several pixels the gradient of the weights only.
namespace replicant::kernels::cpu {

// Whether this is the faster way for Conv2d or one of its gradients.
bool PrefersProduct(const CpuRequest& request);

// PrefersProduct(request) (checked).
std::unique_ptr<Kernel> MakeProductConv(const CpuRequest& request);

}  // namespace replicant::kernels::cpu
