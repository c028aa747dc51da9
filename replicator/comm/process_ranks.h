#pragma once

#include <memory>

#include "replicator/comm/communicator.h"
#include "replicator/comm/process_exchange.h"

namespace replicant::comm {

// Makes `count` >= 1 (checked) ranks in this process. All processes of the
// exchange call it.
//
// When all ranks of a process have arrived at a call, the first one makes it
// for them (process_collectives.h), and the others copy the result. The bits
// depend on the number of ranks, and not on which process has them.
LocalRanks MakeLocalRanks(const std::shared_ptr<ProcessExchange>& exchange,
                          int count);

}  // namespace replicant::comm
