#pragma once

#include <string>

#include "engine/kernels/common/host_kernel.h"

// Rules of backends whose floating kernels know few formats: why a node cannot
// run, or "" if it can. Operands that are not floating are ignored.
namespace replicant::kernels {

// Every floating operand is f32.
std::string WhyNotF32(const KernelRequest& request);
// Every floating operand is f32 or bf16.
std::string WhyNotF32OrBF16(const KernelRequest& request);

}  // namespace replicant::kernels
