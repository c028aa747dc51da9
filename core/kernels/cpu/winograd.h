#pragma once

#include <memory>

#include "core/kernels/cpu/cpu_kernels.h"

// 3x3 convolutions with stride 1 by Winograd's F(4x4, 3x3), see
// winograd_transforms.h: a quarter of the products, as 36 matrix products of
// oneDNN between transforms. Sums differ from direct ones in their last bits,
// and what is not finite spreads to the 4x4 pixels of its tiles.
namespace replicant::kernels::cpu {

// Whether Conv2d or one of its gradients is of such sizes that this is the
// faster way.
bool PrefersWinograd(const CpuRequest& request);

// PrefersWinograd(request) (checked).
std::unique_ptr<Kernel> MakeWinogradConv(const CpuRequest& request);
std::unique_ptr<Kernel> MakeWinogradInputGradient(const CpuRequest& request);
std::unique_ptr<Kernel> MakeWinogradWeightGradient(const CpuRequest& request);

}  // namespace replicant::kernels::cpu
