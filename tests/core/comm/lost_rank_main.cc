// lost_rank RANK kill|stop|late: ranks that make two calls, of which one does
// not come to the second. Run by mpirun.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "core/base/process.h"
#include "core/comm/mpi_communicator.h"

int main(int /*argc*/, char** argv) {
  namespace comm = replicant::comm;
  using namespace std::chrono_literals;
  const int lost = std::atoi(argv[1]);
  const std::string how = argv[2];
  // mpirun's order to end is not to come before what is to be said
  const replicant::StopSignal stop;
  try {
    const auto ranks =
        comm::MakeMpiCommunicator({.timeout = how == "late" ? 500ms : 60s,
                                   .heartbeat_interval = 50ms,
                                   .heartbeat_timeout = 1s});
    ranks->Barrier();
    if (ranks->rank() == lost) {
      // once the others have heard of it
      std::this_thread::sleep_for(300ms);
      if (how == "kill") std::raise(SIGKILL);
      if (how == "stop") std::raise(SIGSTOP);
      std::this_thread::sleep_for(1min);
    }
    ranks->Run({.place = "the second"});
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
