#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/graph/graph.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/memory_planner.h"

namespace replicant::runtime {

class Placement;

// A kernel of a plan, as its backend describes it.
struct PlannedKernel {
  std::string op;
  std::string name;
  kernels::KernelDescription description;
};

// A tensor between kernels.
struct PlannedTensor {
  std::string name;  // of the node that makes it
  graph::TensorType type;
  size_t size_bytes = 0;
};

struct PlanReport {
  int num_nodes = 0;    // of the graph, as given
  int num_kernels = 0;  // launched by a run
  MemoryPlan memory;    // intermediate tensors
  size_t scratch_size_bytes = 0;
  size_t constant_size_bytes = 0;
  // inputs and fetched outputs; on a device, inputs twice (see Executor)
  size_t boundary_size_bytes = 0;
  // variables that the plan uses (owned by the store)
  size_t variable_size_bytes = 0;
  // inputs that stay on the device (owned by the caller)
  size_t resident_size_bytes = 0;
  // in the order of launches
  std::vector<PlannedKernel> kernels;
  // the largest in memory that is shared, largest first
  std::vector<PlannedTensor> largest_tensors;
  // size of the inputs, fetched outputs, variables read and variables written:
  // the minimum that any plan of this step reads and writes
  size_t least_bytes = 0;

  // Everything that the plan itself allocates.
  size_t peak_size_bytes() const {
    return memory.arena_size_bytes + scratch_size_bytes + constant_size_bytes +
           boundary_size_bytes;
  }
  // One line for a log.
  std::string ToString() const;
  // ", resident inputs 20480 bytes"; empty if there are none.
  std::string ResidentText() const;
  // "conv1 bf16[256,41,41,32] 27541504 bytes, ..." for a message.
  std::string LargestTensors() const;
};

// Fills in what is known before a plan takes memory: tensors and sizes.
void DescribeMemory(const graph::Graph& graph,
                    const std::vector<graph::NodeId>& order,
                    const Placement& placement, PlanReport* report);

}  // namespace replicant::runtime
