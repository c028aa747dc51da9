#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/tensor/dtype.h"
#include "engine/kernels/cpu/vector_functions.h"

// Runs of tensors that are stored as f32 or bf16 and computed in f32. f32 is
// used in place. bf16 goes through a scratch run that stays in the cache.
namespace replicant::kernels::cpu {

// Elements begin .. begin + n of a stored tensor as floats: in place, or in
// `scratch`, of n floats (which may be null for f32).
inline const float* LoadRun(const std::byte* data, DType dtype, int64_t begin,
                            int64_t n, float* scratch) {
  if (dtype == DType::kF32) return reinterpret_cast<const float*>(data) + begin;
  ToFloats(reinterpret_cast<const BFloat16*>(data) + begin,
           static_cast<size_t>(n), scratch);
  return scratch;
}

// The memory in which to compute elements from `begin` on, before StoreRun().
inline float* PlaceOfRun(std::byte* data, DType dtype, int64_t begin,
                         float* scratch) {
  return dtype == DType::kF32 ? reinterpret_cast<float*>(data) + begin
                              : scratch;
}

// Stores n elements that were computed at PlaceOfRun().
inline void StoreRun(const float* run, std::byte* data, DType dtype,
                     int64_t begin, int64_t n) {
  if (dtype == DType::kF32) return;
  ToBF16(run, static_cast<size_t>(n),
         reinterpret_cast<BFloat16*>(data) + begin);
}

// Memory for runs of a stored tensor as floats, num_runs of run_size elements
// for each thread; empty for a tensor stored as f32.
class RunScratch {
 public:
  RunScratch(DType dtype, int num_threads, std::size_t num_runs,
             int64_t run_size)
      : num_runs_(num_runs),
        run_size_(dtype == DType::kF32 ? 0
                                       : static_cast<std::size_t>(run_size)),
        floats_(static_cast<std::size_t>(num_threads) * num_runs * run_size_) {}

  float* of(int thread, std::size_t run) {
    return floats_.data() +
           (static_cast<std::size_t>(thread) * num_runs_ + run) * run_size_;
  }

 private:
  std::size_t num_runs_, run_size_;
  std::vector<float> floats_;
};

}  // namespace replicant::kernels::cpu
