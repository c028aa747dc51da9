// Two ranks, of which the second does not come to a call: the first says so and
// ends. Run by mpirun, which then ends the other.
#include <cstdio>
#include <exception>
#include <thread>

#include "core/comm/mpi_communicator.h"

int main() {
  namespace comm = replicant::comm;
  try {
    const auto ranks =
        comm::MakeMpiCommunicator({.timeout = std::chrono::milliseconds(300)});
    ranks->Barrier();
    // until mpirun kills it
    if (ranks->rank() == 1)
      std::this_thread::sleep_for(std::chrono::minutes(1));
    ranks->Barrier();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
