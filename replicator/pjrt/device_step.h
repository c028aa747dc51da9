#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/tensor/host_tensor.h"
#include "engine/pjrt/client.h"
#include "engine/runtime/executor.h"
#include "replicator/pjrt/device_variables.h"
#include "replicator/steps/gradient_sums.h"
#include "replicator/steps/shared_input.h"
#include "replicator/steps/stablehlo_step.h"

namespace replicant::replicator {

// The devices of the replicas, and the host's part of their steps.
struct StepDevices {
  const pjrt::Client& client;
  DeviceVariables& variables;
  // Draws the random numbers.
  kernels::Backend& host;
  uint64_t seed = 0;
};

// A step for a batch of one role (BatchRole), compiled for all replicas.
//
// Run:
// 1. the variables that the host has written go to the devices, which may still
//    compute the previous step,
// 2. the host copies every replica's rows, draws its random numbers and hands
//    both over,
// 3. once the previous step is over, the devices begin this one,
// 4. the step's results replace the variables that it has consumed.
//
// Thread-safety: one thread at a time.
class DeviceStep {
 public:
  // `specs`: a batch of one replica. Throws DeviceError if the plugin cannot
  // compile the step.
  DeviceStep(const StepDevices& devices, StableHloStep step,
             const std::vector<InputSpec>& specs);

  // `batch_number`: index of the batch within its update. Throws DeviceError,
  // also if an earlier step has failed.
  void Run(const SharedInput& input, int64_t batch_number);

  const std::vector<std::string>& value_names() const { return value_names_; }
  // The first replica's value of the last run, by its index in value_names().
  // Waits for it. Throws DeviceError.
  TensorView value(size_t index) const;

  const runtime::PlanReport& report() const { return report_; }

 private:
  using Argument = exporting::StableHloArgument;

  // The arguments of one replica besides variables.
  struct HostPart {
    // for each argument of kind kInput, in their order
    std::vector<HostTensor> inputs;
    // the batch, and the scalars that the host knows, among these
    std::vector<MutableTensorView> batch;
    AccumulationInputs accumulation;
    // Its random numbers; null for a step without.
    std::unique_ptr<runtime::VariableStore> counters;
    std::unique_ptr<runtime::Executor> draws;
  };
  // A value on its way to the host.
  struct Value {
    HostTensor host;
    bool is_fetched = true;
  };

  void Compile();
  void AddHostPart(const StepDevices& devices, const graph::Program& draws,
                   const std::vector<InputSpec>& specs);
  void FillInputs(const SharedInput& input, int64_t batch_number);
  // Sets the counters of the draws where a step without them, or the host, has
  // written them.
  void SyncCounters();
  void Draw();
  // Hands over inputs and draws, by replica. Returns the arguments of every
  // device, some of which are among the uploads.
  std::vector<std::vector<const pjrt::Buffer*>> Upload(
      std::vector<std::vector<pjrt::Upload>>* uploads) const;
  void TakeResults(pjrt::Execution run,
                   std::vector<std::vector<pjrt::Upload>> uploads);

  const pjrt::Client& client_;
  DeviceVariables& variables_;
  // without its text
  exporting::StableHloModule module_;
  std::unique_ptr<pjrt::Executable> executable_;
  std::vector<HostPart> replicas_;
  // Counters of the draws: DeviceVariables::num_writes() of their values.
  std::map<std::string, uint64_t> counters_;
  // of the last run: the first replica's values
  std::vector<pjrt::Buffer> outputs_;
  mutable std::vector<Value> values_;
  std::vector<std::string> value_names_;
  runtime::PlanReport report_;
};

}  // namespace replicant::replicator
