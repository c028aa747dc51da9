#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "engine/runtime/executor.h"
#include "replicator/calls/collective_kernels.h"
#include "replicator/calls/partition.h"
#include "replicator/replicator.h"
#include "replicator/steps/gradient_sums.h"
#include "replicator/steps/shared_input.h"

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

  // Whether the batch of the next run can travel while one computes.
  bool can_read_ahead() const;
  // Sets the index of the next run's batch in its update.
  void SetBatchNumber(int64_t number);
  // Takes the replica's rows of the batch and runs the device's plan. With
  // `reads_ahead`, the next batch is taken and sent meanwhile.
  void RunDevice(size_t replica, size_t device, SharedInput& input,
                 bool reads_ahead);
  // Called when the first device of the first replica has failed: no other then
  // waits for the next batch.
  void EndAhead() { ahead_->Set(Ahead::State::kNone); }

  // Value number `index` of the step, the first replica's.
  TensorView value(size_t index) const;
  // Report of the first replica's first device.
  const runtime::PlanReport& report() const {
    return plans_[0][0].executor->report();
  }
  std::vector<runtime::KernelProfile> profile() const {
    return plans_[0][0].executor->profile();
  }
  ReduceTimes reduce_times() const;

 private:
  // News of the next batch, from the first replica's thread to the others.
  struct Ahead {
    enum class State { kUnknown, kThere, kNone };
    Mutex mutex;
    CondVar changed;
    State state GUARDED_BY(mutex) = State::kUnknown;

    void Set(State new_state) EXCLUDES(mutex);
    // Waits until it is known.
    bool IsThere() EXCLUDES(mutex);
  };

  void TakeBatch(size_t replica, const SharedInput& input);
  void SendAhead(size_t replica, SharedInput& input);

  DevicePlans plans_;
  std::vector<PartitionedProgram::Place> outputs_;
  // by replica: where its rows go
  std::vector<std::vector<MutableTensorView>> batches_;
  // for the replicas whose plans read them
  AccumulationInputs accumulation_;
  // by replica: the number of the batch that its plan has been sent
  std::vector<int64_t> sent_;
  std::unique_ptr<Ahead> ahead_ = std::make_unique<Ahead>();
};

}  // namespace replicant::replicator
