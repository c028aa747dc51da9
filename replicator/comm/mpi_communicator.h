#pragma once

#include <memory>

#include "replicator/comm/communicator.h"

namespace replicant::comm {

// Whether this build has MPI.
bool HasMpi();
// Number of processes that mpirun started together; 1 without mpirun.
int NumMpiProcesses();

// Makes `count` >= 1 (checked) ranks in this process. The first call
// initialises MPI; it is finalised when the process exits without an error.
// After a failed call, or an Abort(), the exit of this process ends all others.
//
// MPI only moves bytes (process_ranks.h). A rank that waits for other processes
// yields its core. There is no check that processes make the same calls.
//
// Several processes watch each other outside MPI (replicator/comm/liveness.h).
// A process that dies, stalls or fails ends the calls of all others with a
// CommError that names it. In these messages, and in messages about deadlines,
// a rank is a process.
//
// Throws DeviceError if this build has no MPI, CommError if it cannot be
// initialised or the processes cannot reach each other.
LocalRanks MakeMpiRanks(int count, const CommunicatorOptions& options = {});

// The same with one rank in each process.
std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& options = {});

}  // namespace replicant::comm
