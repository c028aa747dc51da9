#pragma once

#include <memory>
#include <vector>

#include "core/comm/communicator.h"

namespace replicant::comm {

// The communicators of `size` threads of this process, by rank; each is for one
// of them. Throws InvalidArgument unless size >= 1.
//
// Every rank computes a part of each reduction, straight from the others'
// memory and into it; nothing is copied on the way. A rank that waits spins for
// some microseconds and then sleeps. Calls of different kinds, types or sizes
// that meet are a CommError on all ranks.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(
    int size, const CommunicatorOptions& options = {});

}  // namespace replicant::comm
