// Measures collectives between ranks on this machine: threads of this process,
// processes over TCP and under MPI (which this program starts itself). For
// comparison, measures MPI's own all-reduce, and two loops that make the same
// reads and writes without any synchronisation. One JSON line per case.
//
// All-reduces are in place, as for gradients.
#include <fmt/format.h>
#include <immintrin.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/metrics/json_lines.h"
#include "base/process.h"
#include "base/tensor/host_buffer.h"
#include "base/thread.h"
#include "bench/programs/mpi_all_reduce.h"
#include "replicator/comm/mpi_communicator.h"
#include "replicator/comm/tcp_communicator.h"
#include "replicator/comm/thread_communicator.h"

namespace replicant::comm {
namespace {

enum class What { kThreads, kLoops, kTcp, kTcpBytes, kMpi, kMpiOwn };

struct Case {
  What what = What::kThreads;
  int64_t count = 0;
  int ranks = 2;

  bool is_tcp() const { return what == What::kTcp || what == What::kTcpBytes; }
  bool is_mpi() const { return what == What::kMpi || what == What::kMpiOwn; }
  std::string Name() const {
    constexpr const char* kNames[] = {"threads",   "loops", "tcp",
                                      "tcp-bytes", "mpi",   "mpi-own"};
    return fmt::format("comm/all_reduce/{}/{}/ranks-{}",
                       kNames[static_cast<int>(what)], count, ranks);
  }
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const int64_t count : {256, 65'536, 1'048'576, 25'600'000}) {
    for (const int ranks : {2, 4}) {
      cases.push_back({What::kThreads, count, ranks});
      if (ranks == 2) cases.push_back({What::kLoops, count, ranks});
      cases.push_back({What::kTcp, count, ranks});
      // without reading memory
      cases.push_back({What::kTcpBytes, count, ranks});
      if (!HasMpi()) continue;
      cases.push_back({What::kMpi, count, ranks});
      cases.push_back({What::kMpiOwn, count, ranks});
    }
  }
  return cases;
}

using TimePoint = std::chrono::steady_clock::time_point;
double MillisecondsSince(TimePoint start) {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now() - start)
      .count();
}

// Times `call` on this rank for about `seconds`; all ranks make equally many
// calls. Milliseconds of each.
std::vector<double> Measure(Communicator& comm, double seconds,
                            const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i) call();
  const TimePoint start = std::chrono::steady_clock::now();
  call();
  double wanted[1] = {1e3 * seconds / MillisecondsSince(start)};
  const MutableTensorView view(DType::kF64, Shape({1}), wanted);
  comm.AllReduce(view, view, ReduceOp::kMin);
  const auto rounds =
      static_cast<size_t>(std::clamp(wanted[0], 5.0, 200'000.0));
  std::vector<double> times;
  times.reserve(rounds);
  for (size_t i = 0; i < rounds; ++i) {
    const TimePoint before = std::chrono::steady_clock::now();
    call();
    times.push_back(MillisecondsSince(before));
  }
  return times;
}

struct Tensor {
  explicit Tensor(int64_t count)
      : buffer(static_cast<size_t>(count) * sizeof(float)),
        view(DType::kF32, Shape({count}), buffer.data()) {}

  HostBuffer buffer;
  MutableTensorView view;
};

std::vector<double> MeasureRank(const Case& c, Communicator& comm,
                                double seconds) {
  Tensor tensor(c.count);
  return Measure(comm, seconds, [&] {
    if (c.what == What::kMpiOwn) {
      testing::MpiAllReduce(tensor.view.Span<float>());
    } else {
      comm.AllReduce(tensor.view, tensor.view, ReduceOp::kSum);
    }
  });
}

void PinTo(int rank) {
  const CpuSet cpus = CpuSet::OfThisThread();
  SetThreadAffinity(
      CpuSet({cpus.cpus()[static_cast<size_t>(rank % cpus.size())]}));
}

std::vector<double> MeasureThreads(const Case& c, double seconds) {
  const auto communicators = MakeThreadCommunicators(c.ranks);
  std::vector<double> times;
  std::vector<std::unique_ptr<Thread>> threads;
  threads.reserve(static_cast<size_t>(c.ranks));
  for (int rank = 0; rank < c.ranks; ++rank) {
    threads.push_back(std::make_unique<Thread>(
        "rank", [&, rank](const Thread::StopToken& /*stop*/) {
          PinTo(rank);
          Communicator& comm = *communicators[static_cast<size_t>(rank)];
          const std::vector<double> own = MeasureRank(c, comm, seconds);
          if (rank == 0) times = own;
        }));
  }
  for (const auto& thread : threads) thread->Join();
  return times;
}

// x + y into both, over [begin, end), a multiple of 8.
void AddIntoBoth(float* x, float* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += 8) {
    const __m256 sum =
        _mm256_add_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i));
    _mm256_storeu_ps(x + i, sum);
    _mm256_storeu_ps(y + i, sum);
  }
}

// Two threads, each with its half of the work, that never wait for each other.
std::vector<double> MeasureLoops(const Case& c, double seconds) {
  std::vector<std::unique_ptr<Tensor>> tensors(2);
  const auto communicators = MakeThreadCommunicators(2);
  std::vector<double> times;
  std::vector<std::unique_ptr<Thread>> threads;
  threads.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {
    threads.push_back(std::make_unique<Thread>(
        "loop", [&, rank](const Thread::StopToken& /*stop*/) {
          PinTo(rank);
          Communicator& comm = *communicators[static_cast<size_t>(rank)];
          // its own memory first, as a rank's
          tensors[static_cast<size_t>(rank)] =
              std::make_unique<Tensor>(c.count);
          comm.Barrier();
          float* const x = tensors[0]->view.Span<float>().data();
          float* const y = tensors[1]->view.Span<float>().data();
          const int64_t middle = c.count / 16 * 8;
          const std::vector<double> own = Measure(comm, seconds, [&] {
            AddIntoBoth(x, y, rank == 0 ? 0 : middle,
                        rank == 0 ? middle : c.count);
          });
          comm.Barrier();
          if (rank == 0) times = own;
        }));
  }
  for (const auto& thread : threads) thread->Join();
  return times;
}

void Print(const Case& c, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double bytes = static_cast<double>(c.count) * sizeof(float);
  metrics::JsonObject line;
  line.Add("name", c.Name())
      .Add("value", median)
      .Add("unit", "ms")
      .Add("min_ms", times.front())
      // of the tensor of one rank
      .Add("gb_per_s", bytes / median / 1e6)
      .Add("calls", static_cast<int64_t>(times.size()));
  std::printf("%s\n", line.ToString().c_str());
  std::fflush(stdout);
}

// Runs the processes of a case; the first one prints its line.
void RunProcesses(const Case& c, double seconds) {
  const std::vector<std::string> worker = {
      std::filesystem::read_symlink("/proc/self/exe").string(), "--worker",
      c.Name(), "--seconds", fmt::format("{}", seconds)};
  const auto run = [](const std::vector<std::string>& command) {
    const CommandResult result =
        RunCommand({.command = command}, std::chrono::minutes(10));
    std::printf("%s", result.output.c_str());
    std::fflush(stdout);
  };
  if (c.is_mpi()) {
    std::vector<std::string> command = {"mpirun",
                                        "-n",
                                        std::to_string(c.ranks),
                                        "--oversubscribe",
                                        "--allow-run-as-root",
                                        "--bind-to",
                                        "none"};
    command.insert(command.end(), worker.begin(), worker.end());
    run(command);
    return;
  }
  const std::string rendezvous = (std::filesystem::temp_directory_path() /
                                  fmt::format("bench-comm-{}", ::getpid()))
                                     .string();
  const auto command_of = [&](int rank) {
    std::vector<std::string> command = worker;
    command.insert(command.end(), {"--rank", std::to_string(rank),
                                   "--rendezvous", rendezvous});
    return command;
  };
  std::vector<std::unique_ptr<Process>> others;
  for (int rank = 1; rank < c.ranks; ++rank) {
    others.push_back(
        std::make_unique<Process>(ProcessOptions{.command = command_of(rank)}));
  }
  run(command_of(0));
  for (const auto& other : others) other->Wait();
  std::filesystem::remove(rendezvous + ".lock");
}

void RunWorker(const Case& c, double seconds, const TcpGroup& group) {
  const std::unique_ptr<Communicator> comm =
      c.is_mpi() ? MakeMpiCommunicator()
                 : std::move(MakeTcpRanks(/*count=*/1, group).ranks[0]);
  PinTo(comm->rank());
  const std::vector<double> times = MeasureRank(c, *comm, seconds);
  if (comm->rank() == 0) Print(c, times);
}

int Main(int argc, char** argv) {
  CLI::App app("how fast ranks add their tensors");
  bool is_list = false;
  std::string filter;
  std::string worker;
  double seconds = 1.0;
  app.add_flag("--list", is_list, "print the names of the cases");
  app.add_option("--filter", filter, "run cases with this in their name");
  app.add_option("--seconds", seconds, "of each case");
  app.add_option("--worker", worker, "be one rank of this case");
  TcpGroup group;
  app.add_option("--rank", group.process, "of a worker over TCP");
  app.add_option("--rendezvous", group.rendezvous, "of a worker over TCP");
  CLI11_PARSE(app, argc, argv);
  for (const Case& c : AllCases()) {
    if (!worker.empty()) {
      group.num_processes = c.ranks;
      group.reads_memory = c.what == What::kTcp;
      if (c.Name() == worker) RunWorker(c, seconds, group);
    } else if (c.Name().find(filter) == std::string::npos) {
      continue;
    } else if (is_list) {
      std::printf("%s\n", c.Name().c_str());
    } else if (c.is_mpi() || c.is_tcp()) {
      RunProcesses(c, seconds);
    } else {
      Print(c, c.what == What::kLoops ? MeasureLoops(c, seconds)
                                      : MeasureThreads(c, seconds));
    }
  }
  return 0;
}

}  // namespace
}  // namespace replicant::comm

int main(int argc, char** argv) {
  try {
    return replicant::comm::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_comm: %s\n", e.what());
    return 1;
  }
}
