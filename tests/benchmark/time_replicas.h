#pragma once

#include <vector>

#include "core/graph/passes/passes.h"
#include "core/replicator/replication_config.h"
#include "learner/workloads/d4pg/workload_graph.h"

namespace replicant::learner {

// Times of single training steps of D4PG on replicas, of one global batch that
// is there already, in ms, ascending.
std::vector<double> TimeReplicas(const d4pg::WorkloadConfig& workload,
                                 graph::Precision precision,
                                 const replicator::ReplicationConfig& config,
                                 double seconds);

}  // namespace replicant::learner
