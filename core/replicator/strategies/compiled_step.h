#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/replicator/graph/collective_kernels.h"
#include "core/replicator/graph/partition.h"
#include "core/replicator/replicator.h"
#include "core/replicator/strategies/shared_input.h"
#include "core/runtime/executor.h"

namespace replicant::replicator {

// The plan of one logical device of a replica, with what its calls measure.
struct DevicePlan {
  std::unique_ptr<runtime::Executor> executor;
  std::shared_ptr<const CallWaits> waits;
};
// By replica of this process and logical device.
using DevicePlans = std::vector<std::vector<DevicePlan>>;

// The plans of this process for a batch of one role (built_replica.h).
//
// Thread-safety: RunDevice() from each device's own thread; all other methods
// from one thread, while no device runs.
class CompiledStep {
 public:
  // `outputs`: where the values of the step are, on every replica.
  CompiledStep(DevicePlans plans,
               std::vector<PartitionedProgram::Place> outputs,
               const std::vector<InputSpec>& specs);

  // Says which of an update's batches the next run is for.
  void SetBatchNumber(int64_t number);
  // Takes the replica's rows of the batch and runs the device's plan.
  void RunDevice(size_t replica, size_t device, const SharedInput& input);

  // Value number `index` of the step, the first replica's.
  TensorView value(size_t index) const;
  // Of the first device of the first replica.
  const runtime::PlanReport& report() const {
    return plans_[0][0].executor->report();
  }
  std::vector<runtime::KernelProfile> profile() const {
    return plans_[0][0].executor->profile();
  }
  ReduceTimes reduce_times() const;

 private:
  DevicePlans plans_;
  std::vector<PartitionedProgram::Place> outputs_;
  // by replica: where its rows go
  std::vector<std::vector<MutableTensorView>> batches_;
  // of the replicas whose plans ask for it
  std::vector<MutableTensorView> is_first_, batch_number_;
};

}  // namespace replicant::replicator
