#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/tensor/host_tensor.h"
#include "base/tensor/safetensors.h"
#include "engine/graph/passes/passes.h"
#include "engine/kernels/backend.h"
#include "tools/probe/step_graph.h"

// Runs a workload from given variables on given batches, so that it can be
// compared with any other framework. Files and names: docs/workload_probe.md.
namespace replicant::probe {

struct ProbeOptions {
  int64_t steps = 1;
  graph::Precision precision = graph::Precision::kF32;
  // Debug mode: the first op that makes a value that is not finite is named.
  bool check_finite = false;
};

// Name ("losses/critic_loss") to value.
using ProbeResult = std::map<std::string, HostTensor>;

// Throws IoError, naming `where` (the path of the input), if the input holds
// - a tensor that is neither "variables/NAME" nor "batches/NAME", or a NAME
// that the workload lacks (with the nearest name), - a tensor of another shape
// or type (floating types are converted into each other),
// - not every trained variable, not every input of the graph, or batches of
//   different counts;
// runtime::NumericError, naming step, batch and row, if a batch holds NaN, an
// infinity or an invalid class label; and if any given variable or any result
// is not finite, or, in debug mode, any value.
ProbeResult RunProbe(const StepGraph& workload, kernels::Backend& backend,
                     const SafetensorsReader& input, const std::string& where,
                     const ProbeOptions& options);

}  // namespace replicant::probe
