// Measures training steps and policies; one JSON line per case.
// bench/run/learner compares them with PyTorch.
//
// A case learner/... or actor/... is the step alone: its batch lies where its
// kernels read it. A case update/... is a learner's whole update whose frames
// are kept (bench/programs/stored_update.h), in turns with the step alone:
// draw, input, step and priorities.
//
//   bench_learner [--list] [--filter SUBSTRING] [--seconds S] [--backend NAME]
//                 [--threads N] [--processor_time] [--profile] [--memory]
//                 [--onnx FILE] [--cuda_autotune FOLDER] [--without_pass NAME]
//                 [--replicas R [--strategy in_graph|between_graph
//                                           [--replicas_per_process P]]
//                               [--pjrt_plugin FILE] [--rounds ROUNDS]]
//
// With --processor_time the times count this process on all processors, which
// other programs disturb less: for cases of one thread, since threads wait
// busily for each other.
//
// With --memory nothing is timed: ten steps, and the process's resident memory
// after the first and after the tenth of them. One case per process, since what
// a case leaves behind would be counted with the next.
//
// With --cuda_autotune the backend cuda times the plans of NVIDIA's libraries
// first and keeps its choices in a file of that folder.
//
// With --without_pass the plan is made without a pass (engine/graph/passes), to
// time what it gives.
//
// With --replicas the same global batch is shared among R replicas of this
// process, each of N threads (1 by default), through the replicator; by
// between_graph among processes of P of them (1 by default), under
// `mpirun -n R/P`. The waits of a step are then printed as well: `reduce_ms`
// for gradients that are reduced behind the backward pass, `call_ms` for what
// is needed at once (batch norm over all replicas), without the time for which
// replicas waited for slower ones. With --pjrt_plugin XLA's compiler makes the
// step for the plugin's devices, one for each replica.
//
// The workloads are the YAML files of bench/workloads.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agents/d4pg/policy.h"
#include "base/config/load.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/json_lines.h"
#include "bench/programs/step_alone.h"
#include "bench/programs/step_profile.h"
#include "bench/programs/stored_update.h"
#include "bench/programs/time_replicas.h"
#include "bench/programs/time_update.h"
#include "engine/export/onnx.h"
#include "engine/graph/passes/passes.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/plan_cache.h"
#include "engine/runtime/executor.h"
#include "tests/support/source_folder.h"
#include "tools/probe/d4pg_step.h"
#include "tools/probe/workloads.h"

namespace replicant::learner {
namespace {

struct Options {
  double seconds = 2.0;
  std::string backend = "cpu";
  int threads = 0;  // 0: the cases of 1 and of 2
  bool is_processor_time = false;
  bool has_profile = false;
  bool is_memory = false;
  std::string onnx;           // file for the model of the case; empty: none
  std::string cuda_autotune;  // folder of the tuned plans; empty: not tuned
  std::vector<std::string> passes_off;
  std::string pjrt_plugin;  // backend pjrt
  int replicas = 0;         // 0: the plan alone, without a replicator
  const replicator::Strategy* strategy = &replicator::Strategy::kInGraph;
  int replicas_per_process = 1;  // between_graph
  int rounds = 0;                // 0: replicas alone
};

// Timed one by one until the time is over and there are enough of them, of slow
// cases fewer; as in learner_peer.py.
constexpr int kWarmUpRuns = 5;
constexpr size_t kMinRuns = 5;
constexpr int kSlowWarmUpRuns = 1;
constexpr size_t kSlowMinRuns = 1;
constexpr double kSlowSeconds = 2.0;

struct Case {
  std::string group;     // "learner", "actor" or "update"
  std::string name;      // "d4pg-state-256", "nature-4"
  std::string workload;  // the file
  int64_t batch = 0;     // actor only
  graph::Precision precision = graph::Precision::kF32;
  int threads = 1;

  std::string PrecisionName() const {
    switch (precision) {
      case graph::Precision::kBF16:
        return "bf16";
      case graph::Precision::kTF32:
        return "tf32";
      default:
        return "f32";
    }
  }
  std::string FullName() const {
    return fmt::format("{}/{}/{}/threads-{}", group, name, PrecisionName(),
                       threads);
  }
};

std::vector<Case> AllCases(const Options& options) {
  std::vector<graph::Precision> precisions = {graph::Precision::kF32,
                                              graph::Precision::kBF16};
  if (options.backend == "cuda") {
    precisions.push_back(graph::Precision::kTF32);
  }
  std::vector<const char*> learners = {
      "d4pg-state-256",
      "d4pg-nature-128",
      "d4pg-drq-256",
      "d4pg-light-64",
      "d4pg-swingup-64",
      "d4pg-light-128",
      "d4pg-representation-128",
      "d4pg-representation-full-128",
      "resnet50-8",
      "resnet50-16",
      "resnet50-32",
      "sngan-32-d-16",
      "sngan-32-g-16",
      "sngan-64-d-16",
      "sngan-64-g-16",
  };
  if (options.backend == "cuda" || options.backend == "pjrt") {
    // too large for two processors
    for (const char* name : {"d4pg-nature-256", "resnet50-128", "resnet50-256"})
      learners.push_back(name);
  }
  std::vector<Case> cases;
  for (const int threads : {1, 2}) {
    if (options.threads != 0 && options.threads != threads) continue;
    for (const auto precision : precisions) {
      const auto add = [&](const char* group, const char* name) {
        cases.push_back({.group = group,
                         .name = name,
                         .workload = name,
                         .precision = precision,
                         .threads = threads});
      };
      for (const char* name : learners) add("learner", name);
      for (const char* name : {"d4pg-drq-256", "d4pg-swingup-64"}) {
        add("update", name);
      }
    }
    for (const auto& [kind, workload] :
         {std::pair{"nature", "d4pg-nature-128"}, {"drq", "d4pg-drq-256"}}) {
      for (const int64_t batch : {1, 4, 16}) {
        cases.push_back({.group = "actor",
                         .name = fmt::format("{}-{}", kind, batch),
                         .workload = workload,
                         .batch = batch,
                         .threads = threads});
      }
    }
  }
  return cases;
}

config::Document DocumentOf(const std::string& workload) {
  return config::Document::FromFile(
      testing::SourceFolder(REPLICANT_SOURCE_DIR) / "bench/workloads" /
      (workload + ".yaml"));
}

// The file's name begins with the workload's.
std::string WorkloadOf(const Case& c) {
  return c.workload.substr(0, c.workload.find('-'));
}

probe::d4pg::StepGraphConfig LoadD4pg(const Case& c) {
  return config::Load<probe::d4pg::StepGraphConfig>(DocumentOf(c.workload))
      .config;
}

probe::StepGraph BuildCase(const Case& c) {
  if (c.group != "actor") {
    return probe::FindProbedWorkload(WorkloadOf(c), "case")
        .build(DocumentOf(c.workload), DType::kF32)
        .step;
  }
  const probe::d4pg::StepGraphConfig config = LoadD4pg(c);
  probe::StepGraph policy;
  policy.graph = std::make_unique<graph::Graph>();
  policy.outputs = {
      {"action", agents::d4pg::BuildPolicy(
                     *policy.graph, config.agent, config.Spec(DType::kF32),
                     {.num_environments = c.batch, .has_noise = false})}};
  return policy;
}

int64_t NumParameters(const probe::StepGraph& workload) {
  int64_t count = 0;
  for (const probe::NamedOutput& gradient : workload.gradients) {
    count += gradient.output.shape().num_elements();
  }
  return count;
}

// In seconds since some time.
double Now(bool is_processor_time) {
  timespec time{};
  ::clock_gettime(
      is_processor_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Times of single runs in ms, ascending.
std::vector<double> TimeRuns(StepAlone& step, const Options& options) {
  const auto now = [&] { return Now(options.is_processor_time); };
  double begin = now();
  const auto elapsed = [&] { return now() - begin; };
  for (int i = 0; i < kWarmUpRuns; ++i) {
    if (i >= kSlowWarmUpRuns && elapsed() > kSlowSeconds) break;
    step.Run();
  }
  std::vector<double> times;
  begin = now();
  const auto is_enough = [&] {
    return elapsed() >= options.seconds &&
           (times.size() >= kMinRuns ||
            (times.size() >= kSlowMinRuns && elapsed() > kSlowSeconds));
  };
  while (!is_enough()) {
    const double start = now();
    step.Run();
    times.push_back((now() - start) * 1e3);
  }
  std::ranges::sort(times);
  return times;
}

// Memory of this process, in MB.
double ResidentMemory() {
  std::ifstream file("/proc/self/statm");
  double total_pages = 0.0;
  double resident_pages = 0.0;
  file >> total_pages >> resident_pages;
  return resident_pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

// By how much the resident memory grows from the first to the tenth step.
metrics::JsonObject MeasureMemory(const std::string& name, StepAlone& step) {
  constexpr int kSteps = 10;
  step.Run();
  const double first = ResidentMemory();
  for (int i = 1; i < kSteps; ++i) step.Run();
  const double last = ResidentMemory();
  metrics::JsonObject line;
  line.Add("name", name)
      .Add("first_mb", first)
      .Add("tenth_mb", last)
      .Add("growth_mb", last - first);
  return line;
}

std::unique_ptr<kernels::Backend> MakeBackendOf(const Case& c,
                                                const Options& options) {
  return kernels::MakeBackend(
      options.backend,
      {.num_threads = c.threads,
       .tuned_plans =
           options.cuda_autotune.empty()
               ? nullptr
               : std::make_shared<kernels::PlanCache>(options.cuda_autotune)});
}

metrics::JsonObject RunCase(const Case& c, const Options& options) {
  const auto backend = MakeBackendOf(c, options);
  StepAlone step(
      BuildCase(c), *backend,
      {.passes = {.off = options.passes_off, .precision = c.precision},
       .has_profile = options.has_profile});
  if (!options.onnx.empty()) {
    AtomicWriteFile(
        options.onnx,
        exporting::ToOnnx(*step.step().graph,
                          {.outputs = {{"output", step.spec().outputs[0]}},
                           .value_of = [&](const std::string& name) {
                             return step.variables().Get(name);
                           }}));
  }
  if (options.is_memory) return MeasureMemory(c.FullName(), step);
  const std::vector<double> times = TimeRuns(step, options);
  const std::map<std::string, double> gflop_of_nodes =
      GigaFlopOfNodes(step.step(), step.spec(), backend->target());
  if (options.has_profile) PrintProfile(step.plan().profile(), gflop_of_nodes);

  const double median = times[times.size() / 2];
  double gflop = 0.0;
  for (const auto& [name, of_node] : gflop_of_nodes) gflop += of_node;
  const runtime::PlanReport& report = step.plan().report();
  const auto peak = report.peak_size_bytes() + report.variable_size_bytes +
                    report.resident_size_bytes;
  metrics::JsonObject line;
  line.Add("name", c.FullName())
      .Add("value", median)
      .Add("unit", "ms")
      .Add("min_ms", times.front())
      .Add("gflop", gflop)
      .Add("gflops", gflop / (median * 1e-3))
      .Add("peak_mb", static_cast<double>(peak) / 1e6)
      .Add("runs", times.size())
      .Add("parameters", NumParameters(step.step()))
      .Add("backend", backend->device());
  return line;
}

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The step alone and the whole update, in turns.
metrics::JsonObject RunUpdate(const Case& c, const Options& options) {
  // first: it starts a process
  StoredUpdate update(
      LoadD4pg(c),
      {.replication = {.backend = options.backend,
                       .cuda_autotune = {.is_enabled =
                                             !options.cuda_autotune.empty(),
                                         .cache = options.cuda_autotune},
                       .threads = c.threads},
       .precision = c.precision});
  const auto backend = MakeBackendOf(c, options);
  StepAlone step(
      BuildCase(c), *backend,
      {.passes = {.off = options.passes_off, .precision = c.precision}});
  for (int i = 0; i < kWarmUpRuns; ++i) step.Run();
  const UpdateTimes times = TimeUpdate(step, update, options.seconds);
  const double median = times.updates[times.updates.size() / 2];
  const double alone_ms = times.alone[times.alone.size() / 2];
  metrics::JsonObject line;
  line.Add("name", c.FullName())
      .Add("value", median)
      .Add("unit", "ms")
      .Add("min_ms", times.updates.front())
      .Add("alone_ms", alone_ms)
      .Add("ratio", median / alone_ms)
      .Add("wait_ms", times.wait_ms)
      .Add("sent_frames", times.sent_frames)
      .Add("runs", times.updates.size())
      .Add("backend", backend->device());
  return line;
}

std::string ReplicaName(const Case& c, const Options& options) {
  std::string replicas = fmt::format("replicas-{}", options.replicas);
  if (options.strategy == &replicator::Strategy::kBetweenGraph) {
    replicas = "mpi-" + replicas;
    if (options.replicas_per_process > 1) {
      replicas += fmt::format("-by-{}", options.replicas_per_process);
    }
  }
  return fmt::format("{}/{}/{}/{}/threads-{}", c.group, c.name,
                     c.PrecisionName(), replicas, c.threads);
}

// The case on so many replicas of so many threads.
std::unique_ptr<ReplicaTimer> MakeTimer(const Case& c, const Options& options,
                                        int replicas, int threads) {
  return std::make_unique<ReplicaTimer>(
      MakeReplicaCase(WorkloadOf(c), DocumentOf(c.workload)),
      replicator::ReplicationConfig{
          .strategy =
              replicas == 1 ? &replicator::Strategy::kSingle : options.strategy,
          .replicas = replicas,
          .backend = options.backend,
          .pjrt = {.plugin = options.pjrt_plugin, .options = {}},
          .cuda_autotune = {.is_enabled = !options.cuda_autotune.empty(),
                            .cache = options.cuda_autotune},
          .threads = threads,
          .replicas_per_process = options.replicas_per_process},
      runtime::CompileOptions{
          .passes = {.off = options.passes_off, .precision = c.precision},
          .has_profile = options.has_profile});
}

void RunReplicas(const Case& c, const Options& options) {
  using Clock = std::chrono::steady_clock;
  const auto timer = MakeTimer(c, options, options.replicas, c.threads);
  if (!timer->leads()) return;
  std::vector<double> steps, buckets, calls;
  const auto begin = Clock::now();
  while (std::chrono::duration<double>(Clock::now() - begin).count() <
             options.seconds ||
         steps.size() < kMinRuns) {
    steps.push_back(timer->TimeStep());
    buckets.push_back(timer->bucket_ms());
    calls.push_back(timer->call_ms());
  }
  if (options.has_profile) PrintProfile(timer->profile());
  const double median = Median(steps);
  metrics::JsonObject line;
  line.Add("name", ReplicaName(c, options))
      .Add("value", median)
      .Add("unit", "ms")
      .Add("min_ms", *std::ranges::min_element(steps))
      .Add("runs", steps.size())
      .Add("reduce_ms", Median(buckets))
      .Add("reduce_share", Median(buckets) / median)
      .Add("call_ms", Median(calls))
      .Add("call_share", Median(calls) / median);
  fmt::print("{}\n", line.ToString());
}

// Medians in ms of the steps of a turn.
struct Turn {
  double step_ms = 0.0;
  double bucket_ms = 0.0;
  double call_ms = 0.0;
};

// Steps as in a training, one after the other, while the other program rests.
Turn TakeTurn(ReplicaTimer* timer) {
  using Clock = std::chrono::steady_clock;
  std::this_thread::sleep_for(kRest);
  timer->TimeStep();  // wakes this program's threads
  std::vector<double> steps, buckets, calls;
  const auto begin = Clock::now();
  do {
    steps.push_back(timer->TimeStep());
    buckets.push_back(timer->bucket_ms());
    calls.push_back(timer->call_ms());
  } while (Clock::now() - begin < kTurn);
  return {.step_ms = Median(steps),
          .bucket_ms = Median(buckets),
          .call_ms = Median(calls)};
}

// One replica with the threads of all, and the replicas, in turns.
void RunInTurns(const Case& c, const Options& options) {
  const int threads = options.replicas * c.threads;
  const auto one = MakeTimer(c, options, 1, threads);
  const auto many = MakeTimer(c, options, options.replicas, c.threads);
  for (int round = 0; round < options.rounds; ++round) {
    const Turn of_one = TakeTurn(one.get());
    const Turn of_many = TakeTurn(many.get());
    metrics::JsonObject line;
    line.Add("name", ReplicaName(c, options))
        .Add("one_ms", of_one.step_ms)
        .Add("value", of_many.step_ms)
        .Add("unit", "ms")
        .Add("reduce_ms", of_many.bucket_ms)
        .Add("call_ms", of_many.call_ms);
    fmt::print("{}\n", line.ToString());
    std::fflush(stdout);
  }
  if (options.has_profile) {
    PrintProfile(one->profile());
    PrintProfile(many->profile());
  }
}

}  // namespace
}  // namespace replicant::learner

int main(int argc, char** argv) try {
  namespace learner = replicant::learner;
  CLI::App app("Measures training steps and policies.");
  bool is_list = false;
  std::string filter;
  learner::Options options;
  app.add_flag("--list", is_list, "print the names of the cases");
  app.add_option("--filter", filter, "run the cases whose name holds this");
  app.add_option("--seconds", options.seconds, "per case");
  app.add_option("--backend", options.backend, "what computes");
  app.add_option("--threads", options.threads, "only the cases of so many")
      ->check(CLI::Range(1, 2));
  app.add_flag("--memory", options.is_memory,
               "print how resident memory grows instead of times");
  app.add_option("--onnx", options.onnx,
                 "also write the policy of the case, the only one, as ONNX");
  app.add_option("--cuda_autotune", options.cuda_autotune,
                 "backend cuda: take the fastest plans of libraries, kept in "
                 "this folder");
  app.add_option("--without_pass", options.passes_off,
                 "leave out a pass over the graph, such as fuse_norms");
  app.add_option("--replicas", options.replicas,
                 "the learner's cases on so many replicas")
      ->check(CLI::Range(1, 64));
  app.add_option_function<std::string>(
         "--pjrt_plugin",
         [&options](const std::string& file) {
           options.backend = "pjrt";
           options.pjrt_plugin = file;
         },
         "the replicas are devices of this PJRT plugin")
      ->needs("--replicas")
      ->excludes("--backend");
  app.add_flag("--processor_time", options.is_processor_time,
               "time processors, not the clock");
  app.add_flag("--profile", options.has_profile,
               "print the time of every kernel to stderr");
  app.add_option("--rounds", options.rounds,
                 "of one replica and of several, in turns")
      ->needs("--replicas")
      ->check(CLI::PositiveNumber);
  app.add_option_function<std::string>(
         "--strategy",
         [&options](const std::string& name) {
           using replicant::replicator::Strategy;
           options.strategy = name == Strategy::kInGraph.name
                                  ? &Strategy::kInGraph
                                  : &Strategy::kBetweenGraph;
         },
         "of several replicas")
      ->check(CLI::IsMember({"in_graph", "between_graph"}));
  app.add_option("--replicas_per_process", options.replicas_per_process,
                 "by between_graph, under mpirun -n R/P")
      ->needs("--strategy")
      ->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  if (options.replicas > 0 && options.threads == 0) options.threads = 1;
  if (options.replicas_per_process > 1 &&
      (options.strategy != &replicant::replicator::Strategy::kBetweenGraph ||
       options.replicas % options.replicas_per_process != 0)) {
    throw replicant::InvalidArgument(
        "--replicas_per_process is for between_graph, and divides --replicas");
  }
  for (const learner::Case& c : learner::AllCases(options)) {
    if (c.FullName().find(filter) == std::string::npos) continue;
    if (is_list) {
      fmt::print("{}\n", c.FullName());
      continue;
    }
    if (options.replicas > 0 && c.group != "learner") continue;
    if (c.group == "update") {
      // no other use of a case has this one
      if (options.is_memory || !options.onnx.empty()) continue;
      fmt::print("{}\n", learner::RunUpdate(c, options).ToString());
      std::fflush(stdout);
      continue;
    }
    if (options.rounds > 0) {
      learner::RunInTurns(c, options);
    } else if (options.replicas > 0) {
      learner::RunReplicas(c, options);
    } else {
      fmt::print("{}\n", learner::RunCase(c, options).ToString());
    }
    std::fflush(stdout);
  }
} catch (const std::exception& e) {
  std::fprintf(stderr, "bench_learner: %s\n", e.what());
  return 1;
}
