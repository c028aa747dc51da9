#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/runtime/variable_store.h"
#include "replicator/steps/stablehlo_step.h"
#include "tests/support/xla_runtime.h"

namespace replicant::testing {

// The host of a workload's modules (replicator::StableHloReplicator::steps()):
// divides batches and draws random numbers, all of it before the run.
class ModuleRun {
 public:
  // `variables`: first values. `modules` outlives the run.
  ModuleRun(std::string name,
            const std::vector<replicator::StableHloStep>& modules,
            const NamedTensors& variables);

  // Adds a step of a module. `inputs` has at least those that it needs: tensors
  // of the batch of all replicas, and scalars.
  void AddStep(size_t module, const NamedTensors& inputs);

  XlaRun& run() { return run_; }

 private:
  const std::vector<replicator::StableHloStep>& modules_;
  std::unique_ptr<kernels::Backend> backend_;
  // by replica: the counters of the host
  std::vector<std::unique_ptr<runtime::VariableStore>> counters_;
  XlaRun run_;
};

// All variables of a store.
NamedTensors ValuesOf(const runtime::VariableStore& store);

}  // namespace replicant::testing
