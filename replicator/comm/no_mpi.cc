// The MPI functions of a build without MPI.
#include <utility>

#include "base/error.h"
#include "replicator/comm/mpi_communicator.h"

namespace replicant::comm {

bool HasMpi() { return false; }

int NumMpiProcesses() { return 1; }

LocalRanks MakeMpiRanks(int /*count*/, const CommunicatorOptions& /*options*/) {
  throw DeviceError(
      "this build has no MPI; hint: install libopenmpi-dev and openmpi-bin and "
      "configure again");
}

std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& options) {
  return std::move(MakeMpiRanks(/*count=*/1, options).processes);
}

}  // namespace replicant::comm
