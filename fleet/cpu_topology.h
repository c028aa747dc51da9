#pragma once

#include <filesystem>
#include <limits>
#include <vector>

#include "base/thread.h"

namespace replicant::fleet {

// A logical processor and its physical core.
struct Processor {
  int cpu = 0;
  int core = 0;  // smallest processor of the core
  int package = 0;

  bool operator==(const Processor&) const = default;
};

// The processors that this process may use.
struct CpuTopology {
  // Best first: one thread of every core, package by package, then the second
  // threads in the same order.
  std::vector<Processor> processors;
  // CPU time that the control group allows, in processors.
  double quota = std::numeric_limits<double>::infinity();

  // Number of processors that can be kept busy: all of them, or the quota
  // rounded down; at least 1.
  int NumUsable() const;
};

// Reads /sys and /proc/self/cgroup (cgroup v1 and v2) below `root`. A processor
// without readable files counts as a separate core; an unreadable quota counts
// as no quota. `allowed` must not be empty.
CpuTopology ReadCpuTopology(const CpuSet& allowed = CpuSet::OfThisThread(),
                            const std::filesystem::path& root = "/");

}  // namespace replicant::fleet
