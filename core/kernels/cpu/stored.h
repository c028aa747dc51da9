#pragma once

#include <cstddef>
#include <cstdint>

#include "core/kernels/cpu/vector_functions.h"
#include "core/tensor/dtype.h"

// Tensors that are stored as f32 or bf16 and computed with as floats, run by
// run: f32 where it lies, bf16 by way of a scratch run that stays in the cache.
namespace replicant::kernels::cpu {

// Elements begin .. begin + n of a stored tensor: where they lie, or in
// `scratch`, of n floats (of f32 it may be null).
inline const float* LoadRun(const std::byte* data, DType dtype, int64_t begin,
                            int64_t n, float* scratch) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(data) + begin;
  ToFloats(reinterpret_cast<const BFloat16*>(data) + begin,
           static_cast<size_t>(n), scratch);
  return scratch;
}

// Where elements from `begin` on are to be computed, before StoreRun().
inline float* PlaceOfRun(std::byte* data, DType dtype, int64_t begin,
                         float* scratch) {
  return dtype == DType::kF32 ? reinterpret_cast<float*>(data) + begin
                              : scratch;
}

// Puts n elements that were computed at PlaceOfRun() where they belong.
inline void StoreRun(const float* run, std::byte* data, DType dtype,
                     int64_t begin, int64_t n) {
  if (dtype == DType::kF32) return;
  ToBF16(run, static_cast<size_t>(n),
         reinterpret_cast<BFloat16*>(data) + begin);
}

}  // namespace replicant::kernels::cpu
