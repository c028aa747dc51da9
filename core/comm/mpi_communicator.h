#pragma once

#include <memory>
#include <vector>

#include "core/comm/communicator.h"

namespace replicant::comm {

// Whether this build has MPI.
bool HasMpi();
// Number of processes that mpirun started together; 1 without mpirun.
int NumMpiProcesses();

// One process's part of the ranks of all processes that one mpirun started.
struct MpiRanks {
  // A communicator with one rank per process. Must not be called while a call
  // of `ranks` is under way.
  std::unique_ptr<Communicator> processes;
  // This process's ranks, one for each thread. Ranks are numbered by process.
  std::vector<std::unique_ptr<Communicator>> ranks;
};

// Makes `count` >= 1 (checked) ranks in this process. The first call
// initialises MPI; it is finalised when the process exits without an error.
// After a failed call, or an Abort(), the exit of this process ends all others.
//
// MPI only moves bytes. An all-reduce sends every process its part of every
// rank's elements, adds them in rank order and sends the sums back, piece by
// piece. The bits therefore depend on the number of ranks, and not on which
// process has them. When all ranks of a process have arrived, the first one
// makes the call for them, and the others copy the result. A rank that waits
// for other processes yields its core. There is no check that processes make
// the same calls.
//
// Several processes watch each other beside MPI (core/comm/liveness.h). A
// process that dies, stalls or fails ends the calls of all others with a
// CommError that names it. In these messages, and in those of deadlines, a rank
// is a process.
//
// Throws DeviceError if this build has no MPI, CommError if it cannot be
// initialised or the processes cannot reach each other.
MpiRanks MakeMpiRanks(int count, const CommunicatorOptions& options = {});

// The same with one rank in each process.
std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& options = {});

}  // namespace replicant::comm
