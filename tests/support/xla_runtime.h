#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "engine/export/stablehlo.h"
#include "engine/runtime/variable_store.h"

namespace replicant::testing {

using NamedTensors = std::map<std::string, HostTensor>;

struct XlaStep {
  // Inputs and draws, [replicas, ...].
  NamedTensors arguments;
  // Which of the run's modules.
  size_t module = 0;
};

// Steps of modules with common variables, on as many of XLA's CPU devices as
// they have replicas.
struct XlaRun {
  std::string name;  // in messages
  std::vector<const exporting::StableHloModule*> modules;
  // First values, the same on all replicas.
  NamedTensors variables;
  std::vector<XlaStep> steps;
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

// Runs the program that draws a module's random numbers
// (exporting::StableHloModule::draws) with the counters in `store`. `inputs`
// has those that the program needs.
std::vector<HostTensor> Draw(const graph::Program& draws,
                             runtime::VariableStore& store,
                             const NamedTensors& inputs);

// Tensors of one type, one for each replica, as one: [replicas, ...].
HostTensor Stack(const std::vector<TensorView>& tensors);

}  // namespace replicant::testing
