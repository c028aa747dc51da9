// Measures how many writers a few replay services can serve: each service in a
// separate process, all writers in this one, and a reader that draws from all
// services. Prints one line per figure.
//
//   bench_writers --writers 1000 --shards 4 --seconds 20 --steps_per_s 10
//
//   connect   until every writer has one acknowledged step
//   rate      acknowledged steps and read items per second of all writers
//   memory    resident memory of a writer in this process, and of a service
//   restart   one service is killed and started again at its port: time until
//             each of its writers has a step acknowledged by the new one
//
// A writer paces itself to steps_per_s; 0: as fast as it can.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "base/rpc/server.h"
#include "base/thread.h"
#include "bench/programs/process_cost.h"
#include "replay/client/batch_reader.h"
#include "replay/client/step_writer.h"
#include "replay/service/service.h"

namespace replicant::replay {
namespace {

using namespace std::chrono_literals;
using Seconds = std::chrono::duration<double>;

// cheetah-run from the state, f32
constexpr int64_t kObservationBytes = 17 * 4;
constexpr int64_t kActionBytes = 6 * 4;
constexpr int64_t kEpisodeSteps = 500;
constexpr int64_t kChunkSteps = 8;
constexpr auto kPatience = 120s;

struct Options {
  int writers = 1000;
  int shards = 4;
  double seconds = 20.0;
  double steps_per_s = 10.0;  // of each writer
  int batch_size = 256;
  int port = 0;  // of the service to run; 0: none
};

StepShape Shape() {
  StepShape shape;
  shape.observation_bytes = kObservationBytes;
  shape.action_bytes = kActionBytes;
  return shape;
}

// The service of one shard, which lives as long as its parent.
int Serve(int port) {
  ShardConfig config;
  config.shape = Shape();
  config.max_bytes = int64_t{1} << 30;
  TableConfig table;
  table.name = "default";
  table.max_size = 1'000'000;
  table.n_step.n_step = 3;
  // nobody waits: writers and reader are measured, not their ratio
  table.rate_limiter = {.mode = RateLimiterMode::kMinSize,
                        .min_size_to_sample = 1};
  config.tables = {table};
  Shard shard(config, &Clock::Real());
  rpc::ZmqContext context;
  rpc::Server server(context, ReplayProtocol(), rpc::ServerOptions());
  Service service(&shard, {}, &Clock::Real());
  service.AttachTo(server);
  server.Bind(fmt::format("tcp://127.0.0.1:{}", port));
  server.Run();
  return 0;
}

// A writer and the thread that gives it steps.
class Load {
 public:
  Load(int index, const std::string& endpoint, double steps_per_s)
      : writer_({.endpoint = endpoint,
                 .name = fmt::format("writer-{}", index),
                 .shape = Shape(),
                 .group_steps = kChunkSteps}),
        thread_("load", [this, steps_per_s](const Thread::StopToken& token) {
          Run(steps_per_s, token);
        }) {}
  ~Load() {
    writer_.StopWaiting();
    thread_.RequestStop();
  }

  int64_t acknowledged() const { return writer_.metrics().acknowledged_steps; }
  void RequestStop() { thread_.RequestStop(); }

 private:
  void Run(double steps_per_s, const Thread::StopToken& token) {
    const std::vector<std::byte> observation(kObservationBytes);
    const std::vector<std::byte> action(kActionBytes);
    // a chunk at once, so that a slow writer wakes rarely
    const auto pause = steps_per_s > 0.0
                           ? FromSeconds(kChunkSteps / steps_per_s)
                           : Clock::Duration(0);
    Clock::TimePoint next = Clock::Real().Now();
    int64_t step = 0;
    writer_.BeginEpisode();
    while (!token.IsStopRequested()) {
      for (int64_t i = 0; i < kChunkSteps; ++i) {
        const Clock::TimePoint deadline = Clock::Real().Now() + kPatience;
        if (++step % kEpisodeSteps == 0) {
          static_cast<void>(writer_.EndEpisode(observation, {}, deadline));
          writer_.BeginEpisode();
        }
        const AppendResult result = writer_.Append(
            {.observation = observation, .frame = {}, .action = action},
            deadline);
        // a service that was started again knows no open episode
        if (result == AppendResult::kEpisodeDropped) writer_.BeginEpisode();
      }
      next += pause;
      while (!token.IsStopRequested() && Clock::Real().Now() < next) {
        std::this_thread::sleep_until(
            std::min(next, Clock::Real().Now() + 200ms));
      }
    }
  }

  StepWriter writer_;
  Thread thread_;
};

class Bench {
 public:
  explicit Bench(const Options& options) : options_(options) {
    for (int i = 0; i < options.shards; ++i) {
      ports_.push_back(kFirstPort + i);
      services_.push_back(Start(ports_.back()));
    }
  }

  void Run() {
    const double before_mb = ResidentMb(::getpid());
    const auto start = Clock::Real().Now();
    for (int i = 0; i < options_.writers; ++i) {
      loads_.push_back(std::make_unique<Load>(i, Endpoint(i % options_.shards),
                                              options_.steps_per_s));
    }
    Await([](const Load& load) { return load.acknowledged() > 0; });
    fmt::print("connect  {:.1f} s for {} writers and {} services\n",
               ToSeconds(Clock::Real().Now() - start), options_.writers,
               options_.shards);
    Measure();
    fmt::print(
        "memory   {:.2f} MB a writer, with its thread; {} MB a service\n",
        (ResidentMb(::getpid()) - before_mb) / options_.writers,
        fmt::join(ServiceMb(), ", "));
    Restart();
  }

 private:
  static constexpr int kFirstPort = 27310;

  static std::unique_ptr<Process> Start(int port) {
    return std::make_unique<Process>(ProcessOptions{
        .command = {std::filesystem::read_symlink("/proc/self/exe"), "--port",
                    std::to_string(port)}});
  }
  std::string Endpoint(int shard) const {
    return fmt::format("tcp://127.0.0.1:{}",
                       ports_[static_cast<size_t>(shard)]);
  }

  // Waits until `is_done` holds for every writer of `shard`, -1: of all.
  template <typename Predicate>
  void Await(const Predicate& is_done, int shard = -1) {
    const auto deadline = Clock::Real().Now() + kPatience;
    for (int i = 0; i < options_.writers; ++i) {
      if (shard >= 0 && i % options_.shards != shard) continue;
      while (!is_done(*loads_[static_cast<size_t>(i)])) {
        if (Clock::Real().Now() > deadline) {
          throw CommError(fmt::format("writer {} is not served", i));
        }
        std::this_thread::sleep_for(5ms);
      }
    }
  }

  int64_t Acknowledged() const {
    int64_t sum = 0;
    for (const auto& load : loads_) sum += load->acknowledged();
    return sum;
  }

  std::vector<std::string> ServiceMb() const {
    std::vector<std::string> sizes;
    for (const auto& service : services_) {
      sizes.push_back(fmt::format("{:.0f}", ResidentMb(service->pid())));
    }
    return sizes;
  }

  void Measure() {
    BatchReaderOptions reader_options;
    for (int i = 0; i < options_.shards; ++i) {
      reader_options.endpoints.push_back(Endpoint(i));
    }
    reader_options.shape = Shape();
    reader_options.batch_size = options_.batch_size;
    BatchReader reader(reader_options);
    const auto start = Clock::Real().Now();
    const int64_t steps = Acknowledged();
    int64_t items = 0;
    Batch batch;
    while (Clock::Real().Now() - start < FromSeconds(options_.seconds)) {
      if (reader.Next(Clock::Real().Now() + 1s, &batch) == ReadResult::kOk) {
        items += options_.batch_size;
      }
    }
    const double seconds = ToSeconds(Clock::Real().Now() - start);
    fmt::print("rate     {:.0f} steps/s acknowledged, {:.0f} items/s read\n",
               static_cast<double>(Acknowledged() - steps) / seconds,
               static_cast<double>(items) / seconds);
  }

  void Restart() {
    constexpr int kShard = 0;
    services_[kShard]->Signal(SIGKILL);
    services_[kShard]->Wait();
    // what the killed service has acknowledged by now
    std::vector<int64_t> before;
    for (const auto& load : loads_) before.push_back(load->acknowledged());
    const auto start = Clock::Real().Now();
    services_[kShard] = Start(ports_[kShard]);
    const auto deadline = start + kPatience;
    double first_s = 0.0;
    for (size_t i = kShard; i < loads_.size();
         i += static_cast<size_t>(options_.shards)) {
      while (loads_[i]->acknowledged() <= before[i]) {
        if (Clock::Real().Now() > deadline) {
          throw CommError(fmt::format("writer {} is not served again", i));
        }
        std::this_thread::sleep_for(5ms);
      }
      if (i == kShard) first_s = ToSeconds(Clock::Real().Now() - start);
    }
    fmt::print(
        "restart  the first writer after {:.1f} s, the last one after "
        "{:.1f} s\n",
        first_s, ToSeconds(Clock::Real().Now() - start));
    for (const auto& load : loads_) load->RequestStop();
  }

  const Options options_;
  std::vector<int> ports_;
  std::vector<std::unique_ptr<Process>> services_;
  std::vector<std::unique_ptr<Load>> loads_;
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Measures how many writers a few replay services bear.");
  app.add_option("--writers", options.writers);
  app.add_option("--shards", options.shards);
  app.add_option("--seconds", options.seconds);
  app.add_option("--steps_per_s", options.steps_per_s);
  app.add_option("--batch_size", options.batch_size);
  app.add_option("--port", options.port)->group("");
  CLI11_PARSE(app, argc, argv);
  InitLogging({.role = "bench_writers", .level = LogLevel::kError});
  if (options.port > 0) return Serve(options.port);
  Bench(options).Run();
  return 0;
}

}  // namespace
}  // namespace replicant::replay

int main(int argc, char** argv) {
  try {
    return replicant::replay::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "bench_writers: %s\n", e.what());
    return 1;
  }
}
