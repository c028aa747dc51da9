// Measures how a training step scales with replicas of one process, in rounds
// over all numbers of replicas. bench/run/scaling runs it.
//
//   bench_replicas --case NAME [--set OVERRIDE...] [--replicas 1 2 4 8 16]
//                  [--rows N] [--batch N] [--rounds N] [--devices N]
//
// Weak scaling gives every replica --rows rows, strong scaling divides --batch
// rows. One replica alone on the rows of each is also measured. A replica has
// one thread. Lines: time and processor time of a step by replicas and batch;
// and once, of one replica, the time of its updates, and when in its step the
// buckets of gradients are ready. With --devices one replica on so many logical
// devices, on --batch rows, and nothing else.
//
// NAME is a file of bench/workloads.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/metrics/json_lines.h"
#include "bench/programs/process_cost.h"
#include "bench/programs/time_replicas.h"

namespace replicant::learner {
namespace {

struct Options {
  std::string name;
  std::vector<std::string> overrides;
  std::vector<int> replicas = {1, 2, 4, 8, 16};
  int64_t rows = 1;
  int64_t batch = 16;
  int rounds = 5;
  int devices = 0;  // 0: replicas of one
};

std::unique_ptr<ReplicaTimer> MakeTimer(
    const Options& options, int64_t batch,
    const replicator::ReplicationConfig& config, bool has_profile = false) {
  ReplicaCase c =
      MakeReplicaCase(options.name.substr(0, options.name.find('-')),
                      config::Document::FromFile(
                          std::filesystem::path(REPLICANT_SOURCE_DIR) /
                              "bench/workloads" / (options.name + ".yaml"),
                          options.overrides));
  c.batch_size = batch;
  return std::make_unique<ReplicaTimer>(
      c, config, runtime::CompileOptions{.has_profile = has_profile});
}

replicator::ReplicationConfig InGraph(int replicas) {
  return {.strategy = replicas == 1 ? &replicator::Strategy::kSingle
                                    : &replicator::Strategy::kInGraph,
          .replicas = replicas};
}

// Where in a step its updates and buckets are.
void PrintProfile(const Options& options) {
  // sends all elements, in the buckets of processes
  replicator::ReplicationConfig bucketed = InGraph(2);
  bucketed.top_k = 1.0;
  const auto one = MakeTimer(options, options.rows, InGraph(1), true);
  const auto two = MakeTimer(options, 2 * options.rows, bucketed, true);
  for (int i = 0; i < 5; ++i) {
    one->TimeStep();
    two->TimeStep();
  }
  double total = 0.0;
  double updates = 0.0;
  for (const auto& kernel : one->profile()) {
    total += kernel.mean_ms;
    if (kernel.op.ends_with("Update")) updates += kernel.mean_ms;
  }
  double computed = 0.0;
  std::vector<double> ready;
  for (const auto& kernel : two->profile()) {
    if (kernel.op == "BucketStart") {
      ready.push_back(computed);
    } else if (kernel.op != "BucketWait" && kernel.op != "CollectiveCall") {
      computed += kernel.mean_ms;
    }
  }
  std::string shares;
  for (const double ms : ready) {
    shares += fmt::format("{}{:.4f}", shares.empty() ? "" : " ", ms / computed);
  }
  metrics::JsonObject line;
  line.Add("name", fmt::format("replicas/{}/profile", options.name))
      .Add("rows", options.rows)
      .Add("kernels_ms", total)
      .Add("update_ms", updates)
      .Add("buckets_ready", shares);
  fmt::print("{}\n", line.ToString());
}

void RunDevices(const Options& options) {
  const auto timer =
      MakeTimer(options, options.batch, {.logical_devices = options.devices});
  for (int round = 0; round < options.rounds; ++round) {
    const double begin = 1e3 * ProcessorSeconds();
    const double wall_ms = timer->TimeStep();
    const double cpu_ms = 1e3 * ProcessorSeconds() - begin;
    metrics::JsonObject line;
    line.Add("name", fmt::format("devices/{}", options.name))
        .Add("devices", options.devices)
        .Add("batch", options.batch)
        .Add("wall_ms", wall_ms)
        .Add("cpu_ms", cpu_ms)
        .Add("idle", 1.0 - cpu_ms / (options.devices * wall_ms));
    fmt::print("{}\n", line.ToString());
  }
}

void Run(const Options& options) {
  if (options.devices > 0) return RunDevices(options);
  PrintProfile(options);
  // by replicas and batch
  std::map<std::pair<int, int64_t>, std::unique_ptr<ReplicaTimer>> timers;
  const auto add = [&](int replicas, int64_t batch) {
    auto& timer = timers[{replicas, batch}];
    if (!timer) timer = MakeTimer(options, batch, InGraph(replicas));
  };
  for (const int replicas : options.replicas) {
    add(replicas, options.rows * replicas);
    if (options.batch % replicas != 0) continue;
    add(replicas, options.batch);
    add(1, options.batch / replicas);
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (const auto& [place, timer] : timers) {
      constexpr double kTurnMs = 50.0;
      double wall_ms = 0.0;
      int count = 0;
      const double begin = 1e3 * ProcessorSeconds();
      for (; wall_ms < kTurnMs; ++count) wall_ms += timer->TimeStep();
      const double cpu_ms = 1e3 * ProcessorSeconds() - begin;
      metrics::JsonObject line;
      line.Add("name", fmt::format("replicas/{}", options.name))
          .Add("replicas", place.first)
          .Add("batch", place.second)
          .Add("wall_ms", wall_ms / count)
          .Add("cpu_ms", cpu_ms / count);
      fmt::print("{}\n", line.ToString());
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace replicant::learner

int main(int argc, char** argv) try {
  replicant::learner::Options options;
  CLI::App app("Measures how a training step scales with replicas.");
  app.add_option("--case", options.name, "file of bench/workloads")->required();
  app.add_option("--set", options.overrides, "overrides of the file");
  app.add_option("--replicas", options.replicas, "numbers of replicas");
  app.add_option("--rows", options.rows, "of a replica, weak scaling");
  app.add_option("--batch", options.batch, "of all replicas, strong scaling");
  app.add_option("--devices", options.devices, "logical devices");
  app.add_option("--rounds", options.rounds, "over all numbers");
  CLI11_PARSE(app, argc, argv);
  replicant::learner::Run(options);
  return 0;
} catch (const std::exception& e) {
  fmt::print(stderr, "bench_replicas: {}\n", e.what());
  return 1;
}
