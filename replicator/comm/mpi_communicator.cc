#include "replicator/comm/mpi_communicator.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "replicator/comm/mpi_exchange.h"
#include "replicator/comm/process_ranks.h"

namespace replicant::comm {

bool HasMpi() { return true; }

int NumMpiProcesses() {
  const char* const text = std::getenv("OMPI_COMM_WORLD_SIZE");
  return text == nullptr ? 1 : std::max(1, std::atoi(text));
}

LocalRanks MakeMpiRanks(int count, const CommunicatorOptions& options) {
  return MakeLocalRanks(MpiExchange::OfAllProcesses(options), count);
}

std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& options) {
  return std::move(MakeMpiRanks(/*count=*/1, options).ranks[0]);
}

}  // namespace replicant::comm
