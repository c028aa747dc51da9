// Measures whether two plans on two core sets at once hinder each other: each
// runs a compute-bound graph, alone, then in two processes, then in two threads
// of one process. The cost between two processes comes from the machine
// (caches, memory, shared cores); any further cost between two threads is ours.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/metrics/json_lines.h"
#include "base/thread.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/layers.h"
#include "engine/runtime/executor.h"

namespace replicant {
namespace {

// Median milliseconds of forward and backward of three layers of 256 on 256
// rows, on this thread, bound to `cpus`, for `seconds`.
double MedianMilliseconds(const CpuSet& cpus, double seconds) {
  SetThreadAffinity(cpus);
  const auto backend =
      kernels::MakeBackend("cpu", {.num_threads = cpus.size()});
  runtime::VariableStore store(*backend, /*seed=*/1);
  graph::Graph g;
  graph::Output x = g.Input("x", DType::kF32, Shape({256, 256}));
  std::vector<graph::Output> weights;
  for (const char* name : {"a", "b", "c"}) {
    const nn::Dense layer(g, name, 256, 256);
    x = graph::Elu(layer(x));
    weights.push_back(g.Read(layer.variables()[0]));
  }
  runtime::Executor plan(
      g, {.outputs = graph::Gradients(graph::ReduceMean(x), weights)}, store);

  using Clock = std::chrono::steady_clock;
  const auto milliseconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start)
        .count();
  };
  std::vector<double> times;
  const Clock::time_point start = Clock::now();
  while (milliseconds_since(start) < 1e3 * seconds) {
    const Clock::time_point before = Clock::now();
    plan.Run();
    times.push_back(milliseconds_since(before));
  }
  std::nth_element(times.begin(),
                   times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

// Runs one process per core set at once; returns their medians.
std::vector<double> InProcesses(const std::vector<CpuSet>& sets,
                                double seconds) {
  std::vector<std::array<int, 2>> pipes(sets.size());
  std::vector<pid_t> children;
  for (size_t i = 0; i < sets.size(); ++i) {
    REPLICANT_CHECK_EQ(::pipe(pipes[i].data()), 0);
    const pid_t child = ::fork();
    REPLICANT_CHECK_GE(child, 0);
    if (child == 0) {
      const double median = MedianMilliseconds(sets[i], seconds);
      const bool is_written =
          ::write(pipes[i][1], &median, sizeof(median)) == sizeof(median);
      ::_exit(is_written ? 0 : 1);
    }
    // a child that dies is then the end of the file
    ::close(pipes[i][1]);
    children.push_back(child);
  }
  std::vector<double> medians(sets.size());
  for (size_t i = 0; i < sets.size(); ++i) {
    const auto size = static_cast<ssize_t>(sizeof(double));
    REPLICANT_CHECK_EQ(::read(pipes[i][0], &medians[i], sizeof(double)), size);
    ::waitpid(children[i], nullptr, 0);
    ::close(pipes[i][0]);
  }
  return medians;
}

std::vector<double> InThreads(const std::vector<CpuSet>& sets, double seconds) {
  std::vector<double> medians(sets.size());
  std::vector<std::unique_ptr<Thread>> threads;
  for (size_t i = 0; i < sets.size(); ++i) {
    threads.push_back(std::make_unique<Thread>(
        "plan", [&, i](const Thread::StopToken& /*stop*/) {
          medians[i] = MedianMilliseconds(sets[i], seconds);
        }));
  }
  for (const auto& thread : threads) thread->Join();
  return medians;
}

int Main(int argc, char** argv) {
  CLI::App app("two plans on two core sets: do they hinder each other?");
  double seconds = 5.0;
  std::vector<std::string> cpus = {"0", "1"};
  app.add_option("--seconds", seconds, "of each measurement");
  app.add_option("--cpus", cpus, "two core sets, as 0-3")->expected(2);
  CLI11_PARSE(app, argc, argv);

  const std::vector<CpuSet> sets = {CpuSet::Parse(cpus[0]),
                                    CpuSet::Parse(cpus[1])};
  // processes first: a process must not fork once it has threads
  const double alone = InProcesses({sets[0]}, seconds)[0];
  const auto processes = InProcesses(sets, seconds);
  const auto threads = InThreads(sets, seconds);
  const double worst_process =
      *std::max_element(processes.begin(), processes.end());
  const double worst_thread = *std::max_element(threads.begin(), threads.end());
  metrics::JsonObject line;
  line.Add("name", fmt::format("plans/two-at-once/threads-{}", sets[0].size()))
      .Add("value", worst_thread / worst_process)
      .Add("unit", "ratio")
      .Add("alone_ms", alone)
      .Add("processes_ms", worst_process)
      .Add("threads_ms", worst_thread);
  fmt::print("{}\n", line.ToString());
  return 0;
}

}  // namespace
}  // namespace replicant

int main(int argc, char** argv) {
  try {
    return replicant::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_plans: %s\n", e.what());
    return 1;
  }
}
