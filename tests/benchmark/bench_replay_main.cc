// Measures the replay service from end to end, over tcp loopback: the service's
// loop, its clients and their threads run in this process. One JSON line per
// case.
//
// Pixel cases take recorded frames (scripts/bench/record_frames.py): what a
// codec costs and saves depends on the picture.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/thread.h"
#include "core/metrics/json_lines.h"
#include "core/rpc/client.h"
#include "core/rpc/server.h"
#include "replay/batch_reader.h"
#include "replay/service.h"
#include "replay/step_writer.h"

namespace replicant::replay {
namespace {

constexpr int64_t kFrameBytes = 84 * 84 * 3;
// cheetah-run: 17 numbers seen and 6 given, f32
constexpr int64_t kObservationBytes = 17 * 4;
constexpr int64_t kActionBytes = 6 * 4;
constexpr int64_t kEpisodeSteps = 500;
constexpr int64_t kBatch = 256;

enum class Kind { kInsert, kSample, kUpdate };

struct Case {
  Kind kind;
  std::optional<FrameCodec> codec;  // none: state
  int writers = 1;

  std::string Name() const {
    const std::string what =
        codec ? fmt::format("pixels-84-{}", ToString(*codec)) : "state";
    switch (kind) {
      case Kind::kInsert:
        return fmt::format("replay/insert/{}/tcp/writers-{}", what, writers);
      case Kind::kSample:
        return fmt::format("replay/sample/{}-{}/tcp", what, kBatch);
      case Kind::kUpdate:
        break;
    }
    return fmt::format("replay/update/{}", kBatch);
  }
};

std::vector<Case> AllCases() {
  return {{Kind::kInsert, std::nullopt, 1},
          {Kind::kInsert, std::nullopt, 2},
          {Kind::kInsert, FrameCodec::kLz4, 1},
          {Kind::kInsert, FrameCodec::kLz4, 2},
          {Kind::kSample, std::nullopt},
          {Kind::kSample, FrameCodec::kLz4},
          {Kind::kSample, FrameCodec::kNone},
          {Kind::kUpdate, std::nullopt}};
}

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) +
         1e-9 * static_cast<double>(now.tv_nsec);
}

// Frames one after the other, used in turn.
struct Frames {
  std::vector<std::byte> bytes;

  std::span<const std::byte> Of(int64_t step) const {
    if (bytes.empty()) return {};
    const auto count = static_cast<int64_t>(bytes.size()) / kFrameBytes;
    return std::span(bytes).subspan(
        static_cast<size_t>(step % count * kFrameBytes),
        static_cast<size_t>(kFrameBytes));
  }
};

Frames ReadFrames(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  if (static_cast<int64_t>(bytes.size()) < kFrameBytes ||
      static_cast<int64_t>(bytes.size()) % kFrameBytes != 0) {
    throw InvalidArgument(fmt::format("{}: {} bytes; want frames of {}", path,
                                      bytes.size(), kFrameBytes));
  }
  const auto view = std::as_bytes(std::span(bytes));
  return {{view.begin(), view.end()}};
}

// A service on a port of this host.
class LocalService {
 public:
  explicit LocalService(const ShardConfig& config)
      : shard_(config, &Clock::Real()),
        server_(context_, ReplayProtocol(), {}),
        service_(&shard_, {}, &Clock::Real()) {
    service_.AttachTo(server_);
    endpoint_ = server_.Bind("tcp://127.0.0.1:*");
    loop_.emplace("replay", [this](const auto&) { server_.Run(); });
  }
  ~LocalService() {
    server_.Stop();
    loop_->Join();
  }
  Shard& shard() { return shard_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  Shard shard_;
  rpc::ZmqContext context_;
  rpc::Server server_;
  Service service_;
  std::string endpoint_;
  std::optional<Thread> loop_;
};

ShardConfig ConfigOf(const Case& c) {
  ShardConfig config;
  config.shape = {.observation_bytes = c.codec ? 0 : kObservationBytes,
                  .action_bytes = kActionBytes,
                  .frame_bytes = c.codec ? kFrameBytes : 0};
  config.tables = {{.name = "default",
                    .max_size = c.codec ? 20'000 : 1'000'000,
                    .n_step = {.n_step = 5, .stack = c.codec ? 3 : 1},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  return config;
}

// Streams episodes until `until`, or `max_steps`.
void Write(StepWriter& writer, const StepShape& shape, const Frames& frames,
           Clock::TimePoint until, int64_t max_steps) {
  const std::vector<std::byte> row(kObservationBytes);
  const auto observation =
      std::span(row).first(static_cast<size_t>(shape.observation_bytes));
  const auto action =
      std::span(row).first(static_cast<size_t>(shape.action_bytes));
  const auto deadline = until + std::chrono::minutes(1);
  int64_t step = 0;
  while (step < max_steps && Clock::Real().Now() < until) {
    writer.BeginEpisode();
    for (int64_t t = 0; t < kEpisodeSteps; ++t, ++step) {
      if (writer.Append({observation, frames.Of(step), action, 1.0f, 1.0f},
                        deadline) != AppendResult::kOk) {
        throw CommError("bench_replay: an episode was dropped");
      }
    }
    if (writer.EndEpisode(observation, frames.Of(step), deadline) !=
        AppendResult::kOk) {
      throw CommError("bench_replay: an episode was dropped");
    }
  }
  if (!writer.Flush(deadline)) throw CommError("bench_replay: no answer");
}

StepWriterOptions WriterOf(const Case& c, const LocalService& service,
                           const StepShape& shape) {
  StepWriterOptions options;
  options.endpoint = service.endpoint();
  options.shape = shape;
  options.codec = c.codec.value_or(FrameCodec::kNone);
  return options;
}

struct Timing {
  int64_t items = 0;
  double wall_s = 0.0;
  double cpu_s = 0.0;
  double bytes_per_step = 0.0;  // stored
};

Timing RunInsert(const Case& c, const Frames& frames, double seconds) {
  const ShardConfig config = ConfigOf(c);
  LocalService service(config);
  const auto start = Clock::Real().Now();
  const double cpu_start = CpuSeconds();
  const auto until = start + std::chrono::duration_cast<Clock::Duration>(
                                 std::chrono::duration<double>(seconds));
  {
    std::vector<std::unique_ptr<Thread>> threads;
    for (int i = 0; i < c.writers; ++i) {
      threads.push_back(
          std::make_unique<Thread>("env", [&](const Thread::StopToken&) {
            StepWriter writer(WriterOf(c, service, config.shape));
            Write(writer, config.shape, frames, until, INT64_MAX);
          }));
    }
    for (auto& thread : threads) thread->Join();
  }
  const ShardStatus status = service.shard().Status();
  return {status.tables[0].inserts,
          std::chrono::duration<double>(Clock::Real().Now() - start).count(),
          CpuSeconds() - cpu_start,
          static_cast<double>(status.size_bytes) /
              static_cast<double>(status.tables[0].size)};
}

// A service that holds some steps, for the cases that read.
std::unique_ptr<LocalService> FilledService(const Case& c,
                                            const Frames& frames) {
  const ShardConfig config = ConfigOf(c);
  auto service = std::make_unique<LocalService>(config);
  StepWriter writer(WriterOf(c, *service, config.shape));
  Write(writer, config.shape, frames,
        Clock::Real().Now() + std::chrono::minutes(5),
        c.codec ? 10'000 : 200'000);
  return service;
}

template <typename Step>
Timing TimeFor(double seconds, const Step& step) {
  Timing timing;
  const double cpu_start = CpuSeconds();
  const auto start = Clock::Real().Now();
  while (timing.wall_s < seconds) {
    timing.items += step();
    timing.wall_s =
        std::chrono::duration<double>(Clock::Real().Now() - start).count();
  }
  timing.cpu_s = CpuSeconds() - cpu_start;
  return timing;
}

Timing RunSample(const Case& c, const Frames& frames, double seconds) {
  const auto service = FilledService(c, frames);
  BatchReaderOptions options;
  options.endpoints = {service->endpoint()};
  options.shape = ConfigOf(c).shape;
  options.batch_size = kBatch;
  options.prefetch = 4;
  options.importance_exponent = 0.4;
  BatchReader reader(options);
  Batch batch;
  const auto step = [&] {
    if (reader.Next(Clock::Real().Now() + std::chrono::seconds(30), &batch) !=
        ReadResult::kOk) {
      throw CommError("bench_replay: no batch");
    }
    return batch.size;
  };
  TimeFor(seconds / 10, step);
  return TimeFor(seconds, step);
}

Timing RunUpdate(const Case& c, double seconds) {
  const auto service = FilledService(c, {});
  rpc::ZmqContext context;
  rpc::Client client(context, ReplayProtocol(), {});
  client.Connect(service->endpoint());
  UpdateRequest request{"default", {}};
  for (uint32_t i = 0; i < kBatch; ++i) {
    request.updates.push_back({{i * 701, 0}, 2.0f});
  }
  return TimeFor(seconds, [&] {
    // a hundred one way, and one whose answer says that all are in
    for (int i = 0; i < 100; ++i) {
      if (client.SendOneWay(kUpdateKind, request.Encode(),
                            std::chrono::seconds(30)) != rpc::SendResult::kOk) {
        throw CommError("bench_replay: an update could not be sent");
      }
    }
    const rpc::CallReply reply = client.Call(kUpdateKind, request.Encode());
    if (UpdateReply::Decode(reply.payload).num_updated != kBatch) {
      throw CommError("bench_replay: an update did not arrive");
    }
    return int64_t{101} * kBatch;
  });
}

void RunCase(const Case& c, const Frames& frames, double seconds) {
  Timing timing;
  switch (c.kind) {
    case Kind::kInsert:
      timing = RunInsert(c, frames, seconds);
      break;
    case Kind::kSample:
      timing = RunSample(c, frames, seconds);
      break;
    case Kind::kUpdate:
      timing = RunUpdate(c, seconds);
      break;
  }
  const auto items = static_cast<double>(timing.items);
  metrics::JsonObject line;
  line.Add("name", c.Name())
      .Add("value", items / timing.wall_s)
      .Add("unit", "items/s")
      .Add("items", timing.items)
      .Add("cpu_us_per_item", 1e6 * timing.cpu_s / items);
  if (c.kind == Kind::kInsert) {
    line.Add("bytes_per_step", timing.bytes_per_step);
  }
  fmt::print("{}\n", line.ToString());
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  bool list = false;
  std::string filter, frames_path;
  double seconds = 1.0;
  CLI::App app("Measures the replay service.", "bench_replay");
  app.add_flag("--list", list, "print the names of all cases");
  app.add_option("--filter", filter, "run only names that contain this");
  app.add_option("--seconds", seconds, "time per case, default 1")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--frames", frames_path,
                 "raw frames of 84 x 84 x 3 bytes, for the pixel cases");
  CLI11_PARSE(app, argc, argv);
  InitLogging({.role = "bench_replay"});
  const Frames frames =
      frames_path.empty() ? Frames() : ReadFrames(frames_path);
  for (const Case& c : AllCases()) {
    if (c.Name().find(filter) == std::string::npos) continue;
    if (list) {
      fmt::print("{}\n", c.Name());
    } else if (c.codec && frames.bytes.empty()) {
      fmt::print(stderr, "{}: left out, needs --frames\n", c.Name());
    } else {
      RunCase(c, frames, seconds);
    }
  }
  return 0;
}

}  // namespace
}  // namespace replicant::replay

int main(int argc, char** argv) {
  try {
    return replicant::replay::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_replay: {}\n", e.what());
    return 1;
  }
}
