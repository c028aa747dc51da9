#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/kernels/backend.h"
#include "core/kernels/common/host_kernel.h"

// How the families of CPU kernels present themselves.
namespace replicant::kernels::cpu {

// What a kernel is made from; used while compiling only.
struct CpuRequest : KernelRequest {
  // Of input i; the defaults where the caller said nothing.
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

// One op's row. Without `make`, the op runs as in common/.
struct CpuKernel {
  MakeKernel make = nullptr;
  WhyNot why_not = nullptr;
};

// By the op's name.
using CpuKernelTable = std::map<std::string_view, CpuKernel>;

// One per family; each adds its rows.
void AddElementwiseKernels(CpuKernelTable& table);
void AddMatMulKernels(CpuKernelTable& table);
void AddConvKernels(CpuKernelTable& table);
void AddPixelConvKernels(CpuKernelTable& table);
void AddPoolKernels(CpuKernelTable& table);
void AddNormKernels(CpuKernelTable& table);
void AddBatchNormKernels(CpuKernelTable& table);
void AddLossKernels(CpuKernelTable& table);
void AddOptimizerKernels(CpuKernelTable& table);
void AddReduceKernels(CpuKernelTable& table);
void AddShapeKernels(CpuKernelTable& table);
void AddIndexingKernels(CpuKernelTable& table);

// Whether a convolution, or its weight gradient, is faster as one that reads
// pixels.
bool ShouldReadPixels(const KernelRequest& conv);

// The kernel that common/ has for the op (checked: it has one): slow, for what
// a family does not do itself.
std::unique_ptr<Kernel> MakeCommonKernel(const KernelRequest& request);

// The rules of floating ops: every floating operand is f32, or one of the two.
std::string WhyNotF32(const KernelRequest& request);
std::string WhyNotF32OrBF16(const KernelRequest& request);

}  // namespace replicant::kernels::cpu
