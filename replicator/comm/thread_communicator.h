#pragma once

#include <memory>
#include <vector>

#include "replicator/comm/communicator.h"

namespace replicant::comm {

// Makes the communicators of `size` threads of this process, one for each
// thread, by rank. Throws InvalidArgument unless size >= 1.
//
// Every rank computes a part of each reduction, directly from and to the memory
// of all ranks, without copies. A rank that waits spins for some microseconds
// and then sleeps. Calls of different kinds, types or sizes are a CommError on
// all ranks.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(
    int size, const CommunicatorOptions& options = {});

}  // namespace replicant::comm
