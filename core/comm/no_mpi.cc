// What a build without MPI links.
#include "core/base/error.h"
#include "core/comm/mpi_communicator.h"

namespace replicant::comm {

bool HasMpi() { return false; }

int NumMpiProcesses() { return 1; }

std::unique_ptr<Communicator> MakeMpiCommunicator(
    const CommunicatorOptions& /*options*/) {
  throw DeviceError(
      "this build has no MPI; hint: install libopenmpi-dev and openmpi-bin and "
      "configure again");
}

}  // namespace replicant::comm
