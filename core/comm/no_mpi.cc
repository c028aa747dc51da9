// What a build without MPI links.
#include <cstdlib>

#include "core/base/error.h"
#include "core/comm/mpi_communicator.h"

namespace replicant::comm {

bool HasMpi() { return false; }

bool IsStartedByMpi() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& /*options*/) {
  throw DeviceError(
      "this build has no MPI; hint: install libopenmpi-dev and openmpi-bin and "
      "configure again");
}

}  // namespace replicant::comm
