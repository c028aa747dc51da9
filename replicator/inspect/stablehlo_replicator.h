#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kernels/backend.h"
#include "replicator/replicator.h"
#include "replicator/steps/stablehlo_step.h"
#include "replicator/steps/step_phases.h"

namespace replicant::replicator {

// Makes modules of the steps of a workload without running them: for export.
// The variables lie in host memory, with their first values.
//
// Thread-safety: one thread makes all calls.
class StableHloReplicator : public Replicator {
 public:
  // All replicas of `config` run one module, whatever processes they are in.
  // Throws ConfigError for a strategy whose replicas do not make their steps
  // together, and for logical devices.
  StableHloReplicator(const ReplicationConfig& config, uint64_t seed);

  // In the order of Build(). A step of several phases has a module for each,
  // named "<name>_0" and on; with accumulation a phase that has updates has
  // two, of which the first is named "<name>_earlier".
  const std::vector<StableHloStep>& steps() const { return steps_; }

  int num_replicas() const override { return config_.replicas; }
  int accumulation_steps() const override { return config_.accumulation_steps; }
  runtime::VariableStore& variables() override { return variables_; }

 private:
  std::unique_ptr<Input> DoMakeInput(const InputFn& input_fn,
                                     InputMode mode) override;
  // The result cannot run: Run() and value() throw InvalidArgument.
  std::unique_ptr<Step> DoBuild(
      Input& input, const std::vector<StepFn>& phases,
      const runtime::CompileOptions& options) override;
  void AddModule(StableHloStep step);

  const ReplicationConfig config_;
  const uint64_t seed_;
  std::unique_ptr<kernels::Backend> backend_;
  runtime::VariableStore variables_;
  std::vector<StableHloStep> steps_;
  PhaseBuilder build_phase_;
};

// A replicator that makes modules of the steps of a workload without running
// them.
struct ModuleReplicator {
  std::unique_ptr<Replicator> replicator;
  // The modules that it has built so far. Owned by the replicator.
  const std::vector<StableHloStep>* steps = nullptr;
};

// Throws ConfigError for a configuration whose steps have no module.
ModuleReplicator MakeModuleReplicator(const ReplicationConfig& config,
                                      uint64_t seed);

}  // namespace replicant::replicator
