#pragma once

#include <memory>

#include "engine/graph/passes/passes.h"
#include "engine/kernels/backend.h"
#include "engine/runtime/variable_store.h"

namespace replicant::runtime {

// Something that a process adds to every plan that it compiles, such as calls
// to other processes (replicator::Distribute()).
class PlanExtension {
 public:
  // Additions to one plan, which live as long as the plan.
  class Part {
   public:
    virtual ~Part() = default;
    // Returns null for a node that the backend compiles.
    virtual std::unique_ptr<kernels::Kernel> MakeKernel(
        const graph::Graph& graph, const graph::Node& node) = 0;
    // Called before every run of the plan.
    virtual void BeforeRun(VariableStore& variables) = 0;
  };

  virtual ~PlanExtension() = default;
  // Called before the passes. Returns null to leave the program as it is.
  virtual std::unique_ptr<Part> Extend(graph::Program* program,
                                       bool is_host_memory) = 0;
};

// Null for none. It outlives the plans.
// Thread-safety: set by one thread, while no other one compiles plans.
PlanExtension* PlanExtensionInForce();
void SetPlanExtension(PlanExtension* extension);

}  // namespace replicant::runtime
