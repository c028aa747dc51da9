#pragma once

#include <cstdint>
#include <functional>

namespace replicant::testing {

// Counts of allocations by operator new, by caller.
struct AllocationCounts {
  int64_t own = 0;      // this program
  int64_t library = 0;  // oneDNN, which makes a few small ones in every run
};

// Counts the allocations of `work` in all threads. A program that calls this
// has its operator new replaced.
AllocationCounts CountAllocations(const std::function<void()>& work);

}  // namespace replicant::testing
