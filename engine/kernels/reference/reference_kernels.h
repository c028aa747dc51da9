#pragma once

#include "engine/graph/ops/pool.h"
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

// MaxPool2d of images of a type. input: x; outputs: y and, if wanted, the place
// of each maximum in its window, u8.
RunFunction MaxPoolOf(const graph::TensorType& x,
                      const graph::PoolOptions& options);

}  // namespace replicant::kernels::reference
