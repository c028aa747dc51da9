#pragma once

#include <string>

#include "replicator/inspect/plan_replicator.h"

namespace replicant::programs {

// Launches and memory traffic of a plan, summed over its kernels.
struct PlanTotals {
  int num_library_calls = 0;
  int num_own_kernels = 0;
  int num_generated = 0;
  int num_copies = 0;
  // Bytes of all kernels' operands and scratch, each read or written once per
  // kernel: the traffic without any caching.
  double bytes = 0.0;
  double product_flops = 0.0;  // of library calls
  double other_flops = 0.0;    // of generated kernels
  // Sum over kernels of the time on an H100 for bytes or FLOPs, whichever is
  // longer. A lower bound: no library reaches the peak, and launches cost time.
  double seconds = 0.0;

  int num_launches() const {
    return num_library_calls + num_own_kernels + num_generated + num_copies;
  }
};

PlanTotals TotalsOf(const runtime::PlanReport& report);

// A plan in about twenty lines: launches, bytes, FLOPs, memory, time, the
// largest tensors and the slowest kernels; all kernels with `lists_all`.
std::string PlanText(const replicator::StepPlan& plan, bool lists_all);

}  // namespace replicant::programs
