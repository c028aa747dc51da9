#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/check.h"
#include "engine/kernels/common/supported_dtypes.h"
#include "engine/kernels/cuda/kernel_builder.h"

namespace replicant::kernels::cuda {

// The CUDA backend's implementation of one op.
struct CudaKernel {
  // Adds the steps of a node.
  void (*make)(KernelBuilder& builder);
  // Why the op cannot run with these types ("" if it can).
  std::string (*why_not)(const KernelRequest& request);
};

// Rows by op name.
using CudaKernelTable = std::map<std::string_view, CudaKernel>;

// Families of ops. Each function adds its rows.
void AddBatchNormKernels(CudaKernelTable& table);
void AddConvKernels(CudaKernelTable& table);
void AddElementwiseKernels(CudaKernelTable& table);
void AddIndexingKernels(CudaKernelTable& table);
void AddLinalgKernels(CudaKernelTable& table);
void AddMatMulKernels(CudaKernelTable& table);
void AddOptimizerKernels(CudaKernelTable& table);
void AddPoolKernels(CudaKernelTable& table);
void AddReduceKernels(CudaKernelTable& table);
void AddRowKernels(CudaKernelTable& table);
void AddShapeKernels(CudaKernelTable& table);

// For CudaKernel::why_not, in addition to the rules of supported_dtypes.h: no
// reason.
std::string TakesAll(const KernelRequest& request);

// Calls function.operator()<T>() with float or BFloat16.
template <typename Function>
void DispatchFloat(DType dtype, const Function& function) {
  if (dtype == DType::kBF16) {
    function.template operator()<BFloat16>();
  } else {
    REPLICANT_CHECK(dtype == DType::kF32, "{}", DTypeName(dtype));
    function.template operator()<float>();
  }
}

// Calls function.operator()<T, V>() with the types of a tensor and of vectors
// that belong to it: one type, or vectors of f32 for bf16.
template <typename Function>
void DispatchFloat(DType dtype, DType vector, const Function& function) {
  if (dtype == DType::kBF16 && vector == DType::kF32) {
    function.template operator()<BFloat16, float>();
    return;
  }
  REPLICANT_CHECK(dtype == vector, "{} and {}", DTypeName(dtype),
                  DTypeName(vector));
  DispatchFloat(dtype,
                [&]<typename T>() { function.template operator()<T, T>(); });
}

// Calls function.operator()<kLanes>() with the longest packs of T that divide
// rows of so many columns.
template <typename T, typename Function>
auto DispatchLanes(int64_t columns, const Function& function) {
  if (columns % kMaxLanes<T> == 0) {
    return function.template operator()<kMaxLanes<T>>();
  }
  return function.template operator()<1>();
}

// Calls function.operator()<Word>() with the unsigned integer of an element's
// size.
template <typename Function>
void DispatchWord(DType dtype, const Function& function) {
  switch (DTypeSize(dtype)) {
    case 1:
      return function.template operator()<uint8_t>();
    case 2:
      return function.template operator()<uint16_t>();
    case 4:
      return function.template operator()<uint32_t>();
    default:
      return function.template operator()<uint64_t>();
  }
}

// Parts into which a sum down `rows` rows of `columns` columns is cut, so that
// the device has enough threads.
int64_t PartsOf(int64_t rows, int64_t columns);
// Makes `output` [columns] the sum of f32 partial sums [parts, columns] that
// lie in scratch.
void AddPartialSums(KernelBuilder& builder, size_t scratch_offset,
                    int64_t parts, int64_t columns, size_t output);

// The unit that multiplies operands of a dtype.
inline LaunchDescription::Unit UnitOf(DType in, bool allows_tf32) {
  using Unit = LaunchDescription::Unit;
  if (in == DType::kBF16) return Unit::kBF16;
  return allows_tf32 ? Unit::kTF32 : Unit::kF32;
}

// Returns the address of an operand.
using AddressFunction = std::function<CUdeviceptr(const KernelBindings&)>;

// The bias of a node, input 2, in the dtype of output 0: the libraries take no
// other dtype. One of f32 is rounded to bf16 first.
AddressFunction AddBias(KernelBuilder& builder);
// Why AddBias() cannot ("" if it can).
std::string WhyNotBias(const KernelRequest& request);

}  // namespace replicant::kernels::cuda
