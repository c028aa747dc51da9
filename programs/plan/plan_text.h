#pragma once

#include <string>
#include <string_view>

#include "replicator/inspect/plan_replicator.h"

namespace replicant::programs {

// What a device does at its peak, dense. Both have the same processors.
struct DeviceRates {
  std::string_view name;
  double bytes_per_s = 0.0;
  double bf16_flops_per_s = 989.4e12;
  double tf32_flops_per_s = 494.7e12;
  double f32_flops_per_s = 66.9e12;
};
// NVIDIA H100 Tensor Core GPU Architecture, table 2, SXM5.
inline constexpr DeviceRates kH100{.name = "H100", .bytes_per_s = 3.35e12};
// NVIDIA H200 Tensor Core GPU, datasheet.
inline constexpr DeviceRates kH200{.name = "H200", .bytes_per_s = 4.8e12};

// Launches and memory traffic of a plan, summed over its kernels.
struct PlanTotals {
  int num_library_calls = 0;
  int num_own_kernels = 0;
  int num_generated = 0;
  int num_copies = 0;
  // Bytes of all kernels' operands and scratch, each read or written once per
  // kernel: the traffic without any caching.
  double bytes = 0.0;
  // Bytes of operands that kernels of several launches read again. They count
  // neither in `bytes` nor in `seconds`: a cache may hold them.
  double reread_bytes = 0.0;
  double product_flops = 0.0;  // of library calls
  double other_flops = 0.0;    // of generated kernels
  // Sum over kernels of the time on the device for bytes or FLOPs, whichever is
  // longer. A lower bound: no library reaches the peak, and launches cost time.
  double seconds = 0.0;

  int num_launches() const {
    return num_library_calls + num_own_kernels + num_generated + num_copies;
  }
};

PlanTotals TotalsOf(const runtime::PlanReport& report,
                    const DeviceRates& device = kH100);

// A plan in about twenty lines: launches, bytes, FLOPs, memory, time, the
// largest tensors and the slowest kernels; all kernels with `lists_all`.
std::string PlanText(const replicator::StepPlan& plan, bool lists_all,
                     const DeviceRates& device = kH100);

}  // namespace replicant::programs
