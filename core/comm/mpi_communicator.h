#pragma once

#include <memory>

#include "core/comm/communicator.h"

namespace replicant::comm {

// Whether this build has MPI.
bool HasMpi();
// How many processes mpirun has started together with this one; 1 without it.
int NumMpiProcesses();

// The communicator of all processes that one mpirun has started, one rank each.
// Initialises MPI with the first call; it is finalised when the process ends
// well. After a failed call, or an Abort(), ending the process ends all others.
//
// MPI moves bytes only: an all-reduce sends every rank its part of everybody's
// elements, adds these in rank order and sends the sums around, piece by piece.
// A rank that waits yields its core. Ranks are not checked to make the same
// calls.
//
// Several processes watch each other beside MPI (core/comm/liveness.h): one
// that dies, stands still or fails ends the calls of all others with a
// CommError that names it.
//
// Throws DeviceError if this build has no MPI, CommError if it cannot be
// initialised or the processes cannot reach each other.
std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& options = {});

}  // namespace replicant::comm
