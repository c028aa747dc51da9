#pragma once

#include "replicator/comm/mpi_communicator.h"
#include "replicator/replication_config.h"

namespace replicant::learner {

// `per_process` replicas for each process of mpirun: in these, or all in this.
inline replicator::ReplicationConfig ReplicasOfProcesses(
    const replicator::Strategy* strategy, const char* backend,
    int per_process) {
  const bool has_processes = strategy == &replicator::Strategy::kBetweenGraph;
  return {.strategy = strategy,
          .replicas = comm::NumMpiProcesses() * per_process,
          .backend = backend,
          .timeout_s = 100.0,
          .replicas_per_process = has_processes ? per_process : 1};
}

}  // namespace replicant::learner
