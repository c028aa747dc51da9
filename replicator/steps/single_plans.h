#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "engine/runtime/executor.h"
#include "engine/runtime/variable_store.h"
#include "replicator/replicator.h"
#include "replicator/steps/gradient_sums.h"
#include "replicator/steps/step_phases.h"
#include "replicator/steps/step_values.h"

namespace replicant::replicator {

// The plans of a replica that waits for no other, for all phases of a step and
// all batches of an update.
//
//   SinglePlans plans(phases, specs, seed, &builder);
//   plans.Compile(store, options);
//   while (... fill plans.batch() ...) plans.Run();
//
// Thread-safety: one thread at a time.
class SinglePlans {
 public:
  // Calls the step functions. Throws what they throw, and InvalidArgument for a
  // phase that cannot be accumulated and for two values of one name.
  SinglePlans(const std::vector<StepFn>& phases,
              const std::vector<InputSpec>& specs, uint64_t seed,
              PhaseBuilder* build_phase);

  // The graphs, for the variables that they declare.
  std::vector<const Graph*> graphs() const;
  // `variables` outlive the plans. Call it on the thread that runs them.
  void Compile(runtime::VariableStore& variables,
               const runtime::CompileOptions& options);

  // The memory for the next batch.
  std::span<const MutableTensorView> batch() const;
  // Whether the next batch is the first or the last one of an update.
  bool IsAtBegin() const { return batch_number_ == 0; }
  bool IsAtEnd() const { return batch_number_ + 1 == batches_per_update_; }
  // Learns from the batch.
  void Run();
  // The only plan of a step with one phase and one batch per update, for a
  // caller that runs it itself. Null for other steps.
  runtime::Executor* only_plan() const;

  TensorView value(std::string_view name) const;
  // Report of the first phase's update.
  const runtime::PlanReport& report() const;
  std::vector<runtime::KernelProfile> profile() const;

 private:
  // A phase's program for batches of one role.
  struct Plan {
    // what was built, until it is compiled
    std::unique_ptr<Graph> graph;
    runtime::PlanSpec spec;
    std::unique_ptr<runtime::Executor> executor;
    std::vector<MutableTensorView> batch;
    AccumulationInputs accumulation;
  };
  struct Phase {
    BuiltPhase<std::unique_ptr<Plan>> built;
    const Plan* newest = nullptr;  // value() reads it
  };

  // Null for an earlier batch of a phase that does not accumulate.
  std::unique_ptr<Plan> BuildPlan(const StepFn& step_fn,
                                  const std::vector<InputSpec>& specs,
                                  uint64_t seed,
                                  const Accumulation& accumulation,
                                  std::vector<std::string>* names);
  Plan& PlanOf(const Phase& phase, int64_t batch_number) const;
  // Runs a phase on the batch that its plan holds.
  void RunPhase(Phase* phase, int64_t batch_number);

  std::vector<InputSpec> specs_;
  std::vector<Phase> phases_;
  int batches_per_update_ = 1;
  ValueNames names_;
  int64_t batch_number_ = 0;
  // the batches of the update, for the phases after the first
  std::vector<std::vector<HostTensor>> kept_;
};

}  // namespace replicant::replicator
