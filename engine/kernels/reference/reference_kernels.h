#pragma once

#include "engine/kernels/common/host_kernel.h"

// Families with kernels that only the reference has. The others are in common/.
namespace replicant::kernels::reference {

void AddMatMulKernels(HostKernelTable& table);
void AddConvKernels(HostKernelTable& table);
void AddPoolKernels(HostKernelTable& table);
void AddNormKernels(HostKernelTable& table);
void AddLinalgKernels(HostKernelTable& table);
void AddLossKernels(HostKernelTable& table);
void AddOptimizerKernels(HostKernelTable& table);

}  // namespace replicant::kernels::reference
