#pragma once

#include <functional>

#include "engine/kernels/cuda_backend.h"
#include "replicator/comm/communicator.h"
#include "replicator/replication_config.h"

namespace replicant::replicator {

// The environment's secret for a rendezvous at an address.
inline constexpr const char* kRendezvousKey = "REPLICANT_RENDEZVOUS_KEY";

// Timeouts and heartbeats of `config`.
comm::CommunicatorOptions CommunicatorOptionsOf(
    const ReplicationConfig& config);

// Makes the ranks of this process's replicas, and a rank of the process itself
// in its group: on threads for strategies without processes, where
// the latter is null, otherwise over MPI or TCP. `process` is this one's number
// among those that meet over TCP.
//
// Throws ConfigError for another number of MPI processes than `config` wants
// and for rendezvous `auto`, which only programs know how to resolve, and what
// comm::MakeTcpRanks() and comm::MakeMpiRanks() throw.
comm::LocalRanks MakeReplicaRanks(const ReplicationConfig& config, int process);

// Returns the number of this process's first replica among all replicas of its
// host, by which replicas take devices; without a list of devices 0 for a
// process that sees as many as it has replicas, which `num_visible` counts. All
// processes of `between` call it; null for a lone one.
int FirstReplicaOnHost(
    const ReplicationConfig& config, comm::Communicator* between,
    const std::function<int()>& num_visible = kernels::NumCudaDevices);

}  // namespace replicant::replicator
