// Runs the real collectives of many processes in memory and prints how long
// their messages would take on given links, one JSON line:
//
//   simulate_links --hosts 8 --per_host 4 --count 1048576
//                  [--latency_us 30] [--gb_per_s 1.25]
//                  [--memory_latency_us 2] [--memory_gb_per_s 5] [--bf16]
//
// bench/run/scaling holds its formula against this.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <vector>

#include "base/metrics/json_lines.h"
#include "replicator/comm/process_ranks.h"
#include "tests/replicator/comm/memory_network.h"

namespace replicant::comm {
namespace {

int Main(int argc, char** argv) {
  int hosts = 2;
  int per_host = 4;
  int64_t count = 1 << 20;
  double latency_us = 30.0, gb_per_s = 1.25;
  double memory_latency_us = 2.0, memory_gb_per_s = 5.0;
  bool is_bf16 = false;
  CLI::App app("how long an all-reduce would take on given links");
  app.add_option("--hosts", hosts, "number of hosts");
  app.add_option("--per_host", per_host, "processes of a host");
  app.add_option("--count", count, "elements");
  app.add_option("--latency_us", latency_us, "between hosts");
  app.add_option("--gb_per_s", gb_per_s, "between hosts, each way");
  app.add_option("--memory_latency_us", memory_latency_us, "of a host");
  app.add_option("--memory_gb_per_s", memory_gb_per_s, "of each process");
  app.add_flag("--bf16", is_bf16, "elements of two bytes");
  CLI11_PARSE(app, argc, argv);

  std::vector<int> host_of;
  for (int p = 0; p < hosts * per_host; ++p) host_of.push_back(p / per_host);
  testing::MemoryNetwork network(host_of);
  const DType dtype = is_bf16 ? DType::kBF16 : DType::kF32;
  testing::RunProcesses(network.num_processes(), [&](int process) {
    const LocalRanks own = MakeLocalRanks(network.ExchangeOf(process), 1);
    std::vector<float> x(static_cast<size_t>(count));
    own.processes->Barrier();
    network.Forget(process);
    const MutableTensorView view(dtype, Shape({count}), x.data());
    own.ranks[0]->AllReduce(view, view, ReduceOp::kSum);
  });
  const double seconds = testing::MakespanOf(
      network, host_of, {memory_latency_us * 1e-6, memory_gb_per_s * 1e9},
      {latency_us * 1e-6, gb_per_s * 1e9});
  metrics::JsonObject line;
  line.Add("hosts", hosts)
      .Add("per_host", per_host)
      .Add("bytes", count * static_cast<int64_t>(DTypeSize(dtype)))
      .Add("ms", 1e3 * seconds)
      .Add("messages_of_first", network.Sent(0).messages)
      .Add("bytes_of_first_host", network.SentByHost(0).bytes);
  fmt::print("{}\n", line.ToString());
  return 0;
}

}  // namespace
}  // namespace replicant::comm

int main(int argc, char** argv) {
  try {
    return replicant::comm::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "simulate_links: {}\n", e.what());
    return 1;
  }
}
