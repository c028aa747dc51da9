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

// Of single steps on one global batch that is there already, in ms.
struct ReplicaTimes {
  std::vector<double> steps;  // ascending
  // Medians of Step::reduce_times().
  double buckets = 0.0;
  double calls = 0.0;
};
ReplicaTimes TimeReplicas(const ReplicaCase& c,
                          const replicator::ReplicationConfig& config,
                          graph::Precision precision, double seconds);

}  // namespace replicant::learner
