#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/config/load.h"
#include "core/graph/passes/passes.h"
#include "core/replicator/replicator.h"

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

// Of single steps on one global batch that is there already, in ms. Of several
// processes the first one measures, and the others have nothing.
struct ReplicaTimes {
  std::vector<double> steps;  // ascending
  // Medians of Step::reduce_times().
  double buckets = 0.0;
  double calls = 0.0;
  // Of the first replica, if it was asked for.
  std::vector<runtime::KernelProfile> profile = {};
};
ReplicaTimes TimeReplicas(const ReplicaCase& c,
                          const replicator::ReplicationConfig& config,
                          const runtime::CompileOptions& options,
                          double seconds);

}  // namespace replicant::learner
