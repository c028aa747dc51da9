#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "replicator/input.h"
#include "replicator/replicator.h"

namespace replicant::replicator {

// The input of a step that is built for inspection: the tensors of one
// replica's batch.
class InspectionInput : public Input {
 public:
  // The pipeline feeds `num_replicas`.
  InspectionInput(const Replicator* owner,
                  std::unique_ptr<InputPipeline> pipeline, int num_replicas)
      : owner_(owner), pipeline_(std::move(pipeline)) {
    for (const InputSpec& spec : pipeline_->specs()) {
      specs_.push_back(OfOneReplica(spec, num_replicas));
    }
  }

  // Makes the input of a replica in a group of `replicas`, all in one process.
  static std::unique_ptr<Input> Make(const Replicator* owner,
                                     const InputFn& input_fn, InputMode mode,
                                     int replicas) {
    const int pipelines = mode == InputMode::kPerReplica ? replicas : 1;
    return std::make_unique<InspectionInput>(
        owner, input_fn({.num_replicas = replicas, .num_pipelines = pipelines}),
        replicas / pipelines);
  }

  const Replicator* owner() const { return owner_; }
  const std::vector<InputSpec>& specs() const { return specs_; }

 private:
  const Replicator* owner_;
  // lives as long: a workload asks it what it waits for
  const std::unique_ptr<InputPipeline> pipeline_;
  std::vector<InputSpec> specs_;
};

}  // namespace replicant::replicator
