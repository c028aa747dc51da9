// lost_rank PROCESS kill|stop|late|thread|cut [RENDEZVOUS RANK SIZE]: ranks
// that make two calls, of which the last one of a process does not come to the
// second. By "thread" there are two in each process. By "cut" all make calls
// until somebody cuts the network. Run by mpirun, or, with a rendezvous, as
// rank RANK of SIZE over TCP.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/process.h"
#include "base/thread.h"
#include "replicator/comm/mpi_communicator.h"
#include "replicator/comm/tcp_communicator.h"

namespace comm = replicant::comm;
using namespace std::chrono_literals;

// The act of a lost rank in place of the second call.
static void Lose(const std::string& how) {
  if (how == "thread") return;
  // once the others are in the second call, and have told so many times
  std::this_thread::sleep_for(3s);
  if (how == "kill") std::raise(SIGKILL);
  if (how == "stop") std::raise(SIGSTOP);
  std::this_thread::sleep_for(10min);
}

int main(int argc, char** argv) {
  const int lost = std::atoi(argv[1]);
  const std::string how = argv[2];
  const bool is_late = how == "late" || how == "thread";
  // mpirun's order to end is not to come before what is to be said
  const replicant::StopSignal stop;
  std::atomic<bool> has_failed = false;
  try {
    const int count = how == "thread" ? 2 : 1;
    // short only where the test waits for it
    const comm::CommunicatorOptions options{
        .timeout = is_late ? 10s : 600s,
        .heartbeat_interval = 50ms,
        .heartbeat_timeout = how == "stop" || how == "cut" ? 10s : 600s};
    const comm::LocalRanks world =
        argc > 5 ? comm::MakeTcpRanks(count,
                                      {.process = std::atoi(argv[4]),
                                       .num_processes = std::atoi(argv[5]),
                                       .rendezvous = argv[3]},
                                      options)
                 : comm::MakeMpiRanks(count, options);
    const auto run = [&](comm::Communicator& rank, bool is_lost) {
      try {
        rank.Barrier();
        if (how == "cut") std::fprintf(stderr, "ready\n");
        while (how == "cut") {
          rank.Run({.place = "the second"});
          std::this_thread::sleep_for(1ms);
        }
        if (is_lost) return Lose(how);
        rank.Run({.place = "the second"});
      } catch (const std::exception& e) {
        std::fprintf(stderr, "%s\n", e.what());
        has_failed = true;
      }
    };
    std::vector<std::unique_ptr<replicant::Thread>> threads;
    for (const auto& rank : world.ranks) {
      const bool is_lost =
          world.processes->rank() == lost && rank == world.ranks.back();
      threads.push_back(std::make_unique<replicant::Thread>(
          "rank", [&run, &rank, is_lost](const replicant::Thread::StopToken&) {
            run(*rank, is_lost);
          }));
    }
    for (const auto& thread : threads) thread->Join();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    has_failed = true;
  }
  return has_failed ? 1 : 0;
}
