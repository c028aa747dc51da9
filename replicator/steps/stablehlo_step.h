#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/export/stablehlo.h"
#include "replicator/input.h"
#include "replicator/replicator.h"
#include "replicator/steps/built_replica.h"

// A step function as a StableHLO module for several replicas. The collectives
// of the replicas are ops of the module; nothing is left to a communicator.
namespace replicant::replicator {

// A step of a workload, for all its replicas.
struct StableHloStep {
  // runtime::CompileOptions::name, perhaps with "_earlier".
  std::string name;
  // Its `draws` are replica 0's.
  exporting::StableHloModule module;
  // By replica: StableHloModule::draws.
  std::vector<graph::Program> draws;
  // Whether its updates learn from several batches.
  bool accumulates = false;
  // All variables that the step declares, with their initializers: what a
  // VariableStore is to hold.
  std::vector<graph::VariableSpec> variables;
};

struct StableHloStepOptions {
  // Feeds random ops.
  uint64_t seed = 0;
  int num_replicas = 1;
  // The number format of gradients between replicas.
  GradientFormat gradient_format = {};
  // An update of several batches has two modules, kEarlier and kLast, whose
  // sums are variables (per replica); AccumulationInputs are their
  // inputs.
  Accumulation accumulation = {};
  graph::Precision precision = graph::Precision::kF32;
  // Name of the module.
  std::string name = "step";
};

// Calls `step_fn` for each replica and returns the module that all of them run.
// `specs`: a batch of one replica; its tensors are the first inputs.
//
// Throws what `step_fn`, BuildReplica() and exporting::ToStableHlo() throw, and
// InvalidArgument, at the line of the first difference, if the replicas'
// computations differ in more than random numbers: all of them run one
// module.
StableHloStep BuildStableHloStep(const std::vector<InputSpec>& specs,
                                 const StepFn& step_fn,
                                 const StableHloStepOptions& options);

}  // namespace replicant::replicator
