// Compares the two ways in which the actors of a host compute their policy:
// each for itself, or all by one inference server (actors/inference_server.h).
//
//   bench_inference --config FILE [--set KEY=VALUE ...] --actors 4
//     [--environments 1] [--seconds 5] [--policy_only]
//
// Every actor is a thread with its environments; steps go nowhere. It prints
// frames per second of time and of processor time, over all threads of the
// program, so that processors that others use change only the first. The
// messages are encrypted as in a run.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/actor.h"
#include "actors/batched_policy.h"
#include "actors/inference_server.h"
#include "actors/policy_runner.h"
#include "actors/remote_policy.h"
#include "base/clock.h"
#include "base/rpc/curve.h"
#include "base/rpc/group_key.h"
#include "base/thread.h"
#include "engine/runtime/parameters.h"
#include "env/vector_environment.h"
#include "programs/run/run_config.h"

namespace {

using namespace replicant;

struct Arguments {
  std::string config;
  std::vector<std::string> settings;
  int64_t actors = 4;
  int64_t environments = 1;
  double seconds = 5.0;
  double wait_ms = 2.0;
  int threads = 1;
  bool policy_only = false;
};

// Steps are not sent.
class NoSink : public replay::StepSink {
 public:
  void BeginEpisode() override {}
  void Append(const replay::Step& /*step*/) override {}
  void EndEpisode(std::span<const std::byte> /*observation*/,
                  std::span<const std::byte> /*frame*/) override {}
};

double ProcessorSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// State that all actors share.
struct Bench {
  const Arguments& arguments;
  const programs::RunConfig& config;
  const programs::Registry& registry;
  agents::TaskSpec task;
  std::atomic<bool> is_over = false;
  std::atomic<int64_t> num_steps = 0;
};

// Acts until the end. `make_policy` runs on the actor's own thread.
void RunActor(Bench& bench, int64_t index, std::latch& ready,
              const std::function<std::unique_ptr<actors::Policy>()>& make) {
  const int64_t count = bench.arguments.environments;
  env::VectorEnvironment environments(
      env::MakeConfiguredEnvironments(bench.registry.tasks, bench.config.task,
                                      /*seed=*/1, index * count, count),
      {});
  const std::unique_ptr<actors::Policy> policy = make();
  std::vector<NoSink> sinks(static_cast<size_t>(count));
  std::vector<replay::StepSink*> pointers;
  for (NoSink& sink : sinks) pointers.push_back(&sink);
  actors::Actor actor(bench.task, &environments, policy.get(), pointers,
                      {.exploration = {.random_steps = 0},
                       .first_environment = index * count,
                       .num_all_environments = bench.arguments.actors * count,
                       .seed = 1,
                       .on_episode = [](const actors::EpisodeResult&) {}});
  actor.Step();
  ready.arrive_and_wait();
  for (int64_t step = 0; !bench.is_over; ++step) {
    if (bench.arguments.policy_only) {
      policy->Act(step);
    } else {
      actor.Step();
    }
    bench.num_steps += count;
  }
}

// Runs all actors for the time of the arguments and prints a line.
void Measure(
    Bench& bench, const std::string& mode,
    const std::function<std::unique_ptr<actors::Policy>(int64_t)>& make,
    const std::function<double()>& rows_per_batch) {
  bench.is_over = false;
  std::latch ready(static_cast<std::ptrdiff_t>(bench.arguments.actors) + 1);
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < bench.arguments.actors; ++i) {
    threads.emplace_back([&bench, &ready, &make, i] {
      RunActor(bench, i, ready, [&make, i] { return make(i); });
    });
  }
  ready.arrive_and_wait();
  bench.num_steps = 0;
  const double begin_s = ProcessorSeconds();
  const Clock::TimePoint begin = Clock::Real().Now();
  std::this_thread::sleep_for(FromSeconds(bench.arguments.seconds));
  const double used_s = ProcessorSeconds() - begin_s;
  const double time_s = ToSeconds(Clock::Real().Now() - begin);
  const auto frames =
      static_cast<double>(bench.num_steps.load() * bench.task.action_repeat);
  bench.is_over = true;
  for (std::thread& thread : threads) thread.join();
  fmt::print(
      "{:<6} {} actors x {} environments: {:8.0f} frames/s, {:8.0f} per "
      "processor second, {:.1f} rows a batch\n",
      mode, bench.arguments.actors, bench.arguments.environments,
      frames / time_s, frames / used_s, rows_per_batch());
  std::fflush(stdout);
}

void MeasureServer(Bench& bench) {
  const std::shared_ptr<const agents::Agent> agent = bench.config.MakeAgent();
  const int64_t rows = bench.arguments.actors * bench.arguments.environments;
  const actors::PolicyRunnerOptions options{.threads = bench.arguments.threads,
                                            .seed = 1};
  actors::BatchedPolicy policy(*agent, bench.task, options, rows);
  // those that the learner would publish
  actors::PolicyRunner source(*agent, bench.task, {.seed = 1});
  std::vector<std::string> names;
  for (const auto& [name, variable] : source.variables().variables()) {
    if (agent->IsOfPolicy(name)) names.push_back(name);
  }
  const std::string bytes = runtime::EncodeVariables(source.variables(), names);
  bool has_started = false;
  actors::InferenceServer inference(
      &policy,
      {.max_wait = FromSeconds(1e-3 * bench.arguments.wait_ms),
       .poll_parameters = [&]() -> std::optional<actors::PublishedParameters> {
         if (std::exchange(has_started, true)) return std::nullopt;
         return actors::PublishedParameters{
             .version = 1,
             .agent_steps = 0,
             .bytes = std::as_bytes(std::span(bytes))};
       }});
  const rpc::GroupKey key(rpc::GenerateCurveKeyPair());
  rpc::ZmqContext context;
  const auto guard = key.MakeGuard(context);
  rpc::ServerOptions server_options;
  server_options.socket.curve = key.server_role();
  server_options.tick_interval = FromSeconds(1e-3 * bench.arguments.wait_ms);
  rpc::Server server(context, actors::InferenceProtocol(), server_options);
  inference.AttachTo(server);
  const std::string endpoint =
      server.Bind(fmt::format("ipc://@bench-inference-{}", ::getpid()));
  std::thread loop([&server] { server.Run(); });
  Measure(
      bench, "server",
      [&](int64_t i) {
        return std::make_unique<actors::RemotePolicy>(
            bench.task,
            actors::RemotePolicyOptions{
                .find_server = [&endpoint] { return endpoint; },
                .curve = key.client_role(),
                .name = fmt::format("actor-{}", i),
                .num_environments = bench.arguments.environments,
                .is_over = [&bench] { return bench.is_over.load(); }});
      },
      [&] {
        const actors::InferenceMetrics& metrics = inference.metrics();
        return static_cast<double>(metrics.rows) /
               static_cast<double>(std::max<int64_t>(1, metrics.batches));
      });
  server.Stop();
  loop.join();
}

void Main(const Arguments& arguments) {
  const programs::Registry registry = programs::Registry::BuiltIn();
  const auto loaded = programs::LoadRunConfig(
      config::Document::FromFile(arguments.config, arguments.settings),
      registry);
  Bench bench{.arguments = arguments,
              .config = loaded.config,
              .registry = registry,
              .task = agents::MakeTaskSpec(
                  loaded.config.task,
                  *env::MakeConfiguredEnvironment(
                      registry.tasks, loaded.config.task, /*seed=*/1, 0))};
  const std::shared_ptr<const agents::Agent> agent = bench.config.MakeAgent();
  Measure(
      bench, "local",
      [&](int64_t i) {
        return std::make_unique<actors::PolicyRunner>(
            *agent, bench.task,
            actors::PolicyRunnerOptions{
                .num_environments = arguments.environments,
                .first_environment = i * arguments.environments,
                .seed = 1});
      },
      [&] { return static_cast<double>(arguments.environments); });
  MeasureServer(bench);
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("Compares local inference with inference by a server.");
  app.add_option("--config", arguments.config)->required();
  app.add_option("--set", arguments.settings)->take_all();
  app.add_option("--actors", arguments.actors)->check(CLI::Range(1, 1000));
  app.add_option("--environments", arguments.environments)
      ->check(CLI::Range(1, 1000));
  app.add_option("--seconds", arguments.seconds);
  app.add_option("--wait_ms", arguments.wait_ms);
  app.add_option("--threads", arguments.threads);
  app.add_flag("--policy_only", arguments.policy_only);
  CLI11_PARSE(app, argc, argv);
  Main(arguments);
  return 0;
}
