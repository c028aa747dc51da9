#pragma once

#include <memory>
#include <vector>

#include "core/comm/communicator.h"

namespace replicant::comm {

// Whether this build has MPI.
bool HasMpi();
// How many processes mpirun has started together with this one; 1 without it.
int NumMpiProcesses();

// What a process has of the ranks of all processes that one mpirun has started.
struct MpiRanks {
  // One rank for each process. Not to be called while a call of `ranks` is
  // under way.
  std::unique_ptr<Communicator> processes;
  // This process's ranks, each for a thread. Ranks of earlier processes come
  // first, so that all of them are numbered through.
  std::vector<std::unique_ptr<Communicator>> ranks;
};

// `count` >= 1 (checked) ranks in this process. Initialises MPI with the first
// call; it is finalised when the process ends well. After a failed call, or an
// Abort(), ending the process ends all others.
//
// MPI moves bytes only: an all-reduce sends every process its part of every
// rank's elements, adds these in rank order and sends the sums around, piece by
// piece. So the bits depend on the number of ranks, and not on which process
// has them. The first rank of a process does it for all, once they are there,
// and the others copy what it has got. One that waits for other processes
// yields its core. Processes are not checked to make the same calls.
//
// Several processes watch each other beside MPI (core/comm/liveness.h): one
// that dies, stands still or fails ends the calls of all others with a
// CommError that names it. In these messages, and in those of deadlines, a rank
// is a process.
//
// Throws DeviceError if this build has no MPI, CommError if it cannot be
// initialised or the processes cannot reach each other.
MpiRanks MakeMpiRanks(int count, const CommunicatorOptions& options = {});

// The same for one rank in each process.
std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& options = {});

}  // namespace replicant::comm
