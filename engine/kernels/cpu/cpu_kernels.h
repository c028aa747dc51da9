#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "engine/kernels/backend.h"
#include "engine/kernels/common/host_kernel.h"
#include "engine/kernels/common/supported_dtypes.h"

// The interface of a family of CPU kernels.
namespace replicant::kernels::cpu {

// The arguments of a kernel's maker; valid while compiling only.
struct CpuRequest : KernelRequest {
  // Traits of input i; defaults if the caller gave none.
  InputTraits traits(size_t i) const {
    return i < inputs.size() ? inputs[i] : InputTraits{};
  }

  int num_threads = 1;
  // one for each input, or none
  std::span<const InputTraits> inputs = {};
};

using MakeKernel = std::unique_ptr<Kernel> (*)(const CpuRequest&);
// Why the family cannot run the node; empty if it can.
using WhyNot = std::string (*)(const KernelRequest&);

// The row of one op. Without `make`, the op runs as in common/.
struct CpuKernel {
  MakeKernel make = nullptr;
  WhyNot why_not = nullptr;
};

// Rows by op name.
using CpuKernelTable = std::map<std::string_view, CpuKernel>;

// One function per family, which adds its rows.
void AddElementwiseKernels(CpuKernelTable& table);
void AddMatMulKernels(CpuKernelTable& table);
void AddConvKernels(CpuKernelTable& table);
void AddPixelConvKernels(CpuKernelTable& table);
void AddPoolKernels(CpuKernelTable& table);
void AddNormKernels(CpuKernelTable& table);
void AddBatchNormKernels(CpuKernelTable& table);
void AddLinalgKernels(CpuKernelTable& table);
void AddLossKernels(CpuKernelTable& table);
void AddOptimizerKernels(CpuKernelTable& table);
void AddReduceKernels(CpuKernelTable& table);
void AddShapeKernels(CpuKernelTable& table);
void AddIndexingKernels(CpuKernelTable& table);

// Rule of the norms: x may be bf16, and gamma, beta and statistics are f32.
std::string WhyNotNorm(const KernelRequest& request);

// Whether a convolution, or its weight gradient, is faster with the loops that
// read pixels.
bool ShouldReadPixels(const KernelRequest& conv);

// The kernel of common/ for an op that it has (checked). Slow: for nodes that a
// family does not take.
std::unique_ptr<Kernel> MakeCommonKernel(const KernelRequest& request);

}  // namespace replicant::kernels::cpu
