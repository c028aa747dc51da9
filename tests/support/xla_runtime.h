#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/export/stablehlo.h"
#include "core/kernels/backend.h"
#include "core/runtime/executor.h"
#include "core/runtime/variable_store.h"
#include "core/tensor/host_tensor.h"

namespace replicant::testing {

using NamedTensors = std::map<std::string, HostTensor>;

// Some steps of a module, on as many of XLA's CPU devices as it has replicas.
struct XlaRun {
  std::string name;  // in messages
  exporting::StableHloModule module;
  // First values, the same on all replicas.
  NamedTensors variables;
  // By step: inputs and draws, [replicas, ...].
  std::vector<NamedTensors> steps;
};

struct XlaResult {
  // By step, [replicas, ...].
  std::vector<NamedTensors> outputs;
  // After the last step, [replicas, ...].
  NamedTensors variables;
};

// Runs all modules in one process of Python (tests/support/run_stablehlo.py).
// Throws Error with what it prints if a module is refused, or if a result that
// should be the same on all replicas is not.
std::vector<XlaResult> RunXla(const std::vector<XlaRun>& runs);

// Draws the random numbers of one replica, step by step, as a runtime does
// (exporting::StableHloModule::draws).
class HostDraws {
 public:
  // `variables`: values before the first step; it may have others as well.
  HostDraws(const graph::Program& draws, kernels::Backend& backend,
            const NamedTensors& variables);

  // The draws of the next step, in the order of the program. `inputs` has those
  // that the program needs.
  std::vector<HostTensor> Next(const NamedTensors& inputs = {});

 private:
  runtime::VariableStore store_;
  runtime::Executor plan_;
};

// Tensors of one type, one for each replica, as one: [replicas, ...].
HostTensor Stack(const std::vector<TensorView>& tensors);

}  // namespace replicant::testing
