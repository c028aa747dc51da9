// Two ranks, of which the second does not come to a call: the first says so and
// ends. Run by mpirun, which then ends the other.
#include <cstdio>
#include <exception>
#include <thread>

#include "core/comm/mpi_communicator.h"

int main() {
  using namespace replicant::comm;
  try {
    const auto comm =
        MakeMpiCommunicator({.timeout = std::chrono::milliseconds(300)});
    comm->Barrier();
    // until mpirun kills it
    if (comm->rank() == 1) std::this_thread::sleep_for(std::chrono::minutes(1));
    comm->Barrier();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
