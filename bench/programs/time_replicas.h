#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "replicator/replicator.h"

namespace replicant::learner {

// A training step as replicas make it.
struct ReplicaCase {
  int64_t batch_size = 0;  // of all replicas
  // The inputs of so many rows.
  std::function<std::vector<replicator::InputSpec>(int64_t rows)> specs;
  replicator::StepFn step_fn;
};

// `workload` is d4pg, resnet50 or sngan, whose configuration the document is.
// Throws ConfigError.
ReplicaCase MakeReplicaCase(const std::string& workload,
                            config::Document document);

// One replicator with its step on one global batch, which is there already.
//
// The first of several processes makes steps; the others follow it until it is
// gone.
class ReplicaTimer {
 public:
  // Builds the step and makes some to warm up.
  ReplicaTimer(const ReplicaCase& c,
               const replicator::ReplicationConfig& config,
               const runtime::CompileOptions& options);
  ~ReplicaTimer();
  ReplicaTimer(const ReplicaTimer&) = delete;
  ReplicaTimer& operator=(const ReplicaTimer&) = delete;

  // Whether this is the process that measures.
  bool leads() const { return replicator_->process_id() == 0; }
  // Time of one step and of reading its values, in ms.
  double TimeStep();
  // Waits of the last step, in ms.
  double bucket_ms() const { return 1e3 * step_->reduce_times().buckets_s; }
  double call_ms() const { return 1e3 * step_->reduce_times().calls_s; }
  // Profile of the first replica, if requested.
  std::vector<runtime::KernelProfile> profile() const {
    return step_->profile();
  }

 private:
  std::unique_ptr<replicator::Replicator> replicator_;
  std::unique_ptr<replicator::Input> input_;
  std::vector<std::string> values_;  // names
  std::unique_ptr<replicator::Step> step_;
};

}  // namespace replicant::learner
