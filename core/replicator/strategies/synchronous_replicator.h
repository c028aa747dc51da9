#pragma once

#include <cstdint>
#include <memory>

#include "core/replicator/replicator.h"

namespace replicant::replicator {

// Strategies `in_graph` and `between_graph`: replicas that make every step
// together, in one process on groups of its processors, or some in each process
// under MPI.
//
// Each replica has a plan, a store and a communicator of its own. All stores
// begin with the same values and get the same updates, so that they stay equal
// bit by bit. Replicas of one process share one copy of the trained variables
// (core/replicator/strategies/shared_updates.h) where their backend's memory is
// the host's; on another backend each replica has a copy, and collectives stage
// through host buffers. A variable that every replica updates with values of
// its own is made equal within the step, as its ReplicaAgreement says.
//
// A replica that fails ends the step of all.
//
// `process`: this one's number among those that meet over TCP.
std::unique_ptr<Replicator> MakeSynchronousReplicator(
    const ReplicationConfig& config, uint64_t seed,
    const kernels::BackendFactory& make_backend, int process = 0);

}  // namespace replicant::replicator
