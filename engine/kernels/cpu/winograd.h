#pragma once

#include <memory>

#include "engine/kernels/cpu/cpu_kernels.h"

// 3x3 convolutions with stride 1 by Winograd's F(4x4, 3x3), see
// winograd_transforms.h: a quarter of the multiplications, as 36 matrix
// products of oneDNN between transforms. Sums differ from the direct method in
// their last bits. A value that is not finite spreads over the 4x4 pixels of
// its tiles.
namespace replicant::kernels::cpu {

// Whether this method is faster for a Conv2d or one of its gradients.
bool PrefersWinograd(const CpuRequest& request);

// Requires PrefersWinograd(request) (checked).
std::unique_ptr<Kernel> MakeWinogradConv(const CpuRequest& request);
std::unique_ptr<Kernel> MakeWinogradInputGradient(const CpuRequest& request);
std::unique_ptr<Kernel> MakeWinogradWeightGradient(const CpuRequest& request);

}  // namespace replicant::kernels::cpu
