// Measures the replay service from end to end: the service in one process, its
// clients in another. One JSON line per case.
//
// "shm" is what clients of the service's host do by default: batches come
// through shared memory, steps go over tcp loopback. "tcp" is what clients of
// other hosts do: everything goes over tcp. An item counts when it is in the
// replay, or stacked and decompressed in the reader's buffer.
//
// Pixel cases take recorded frames (bench/run/record_frames.py): what a
// codec costs and saves depends on the picture.
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/metrics/json_lines.h"
#include "base/rpc/client.h"
#include "base/rpc/server.h"
#include "base/thread.h"
#include "replay/client/batch_reader.h"
#include "replay/client/step_writer.h"
#include "replay/service/service.h"

namespace replicant::replay {
namespace {

constexpr int64_t kFrameBytes = 84 * 84 * 3;
// cheetah-run: 17 numbers seen and 6 given, f32
constexpr int64_t kObservationBytes = 17 * 4;
constexpr int64_t kActionBytes = 6 * 4;
constexpr int64_t kEpisodeSteps = 500;
constexpr int64_t kBatch = 256;
constexpr int64_t kWindow = 8;

enum class Kind { kInsert, kSample, kUpdate, kEncode };

struct Case {
  Kind kind = Kind::kInsert;
  std::optional<FrameCodec> codec = {};  // none: state
  bool is_shm = true;
  int writers = 1;
  bool has_windows = false;
  bool keeps_frames = false;  // the reader

  std::string Name() const {
    const std::string what =
        codec ? fmt::format("pixels-84-{}", ToString(*codec)) : "state";
    const char* const transport = is_shm ? "shm" : "tcp";
    switch (kind) {
      case Kind::kInsert:
        return fmt::format("replay/insert/{}/{}/writers-{}", what, transport,
                           writers);
      case Kind::kSample:
        return fmt::format("replay/{}/{}-{}/{}{}",
                           has_windows ? "windows" : "sample", what, kBatch,
                           transport, keeps_frames ? "/kept" : "");
      case Kind::kUpdate:
        return fmt::format("replay/update/{}", kBatch);
      case Kind::kEncode:
        break;
    }
    return fmt::format("replay/encode/{}", what);
  }
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const bool is_shm : {true, false}) {
    for (const int writers : {1, 2}) {
      cases.push_back({Kind::kInsert, std::nullopt, is_shm, writers});
      cases.push_back({Kind::kInsert, FrameCodec::kLz4, is_shm, writers});
    }
    cases.push_back({Kind::kSample, std::nullopt, is_shm});
    cases.push_back({Kind::kSample, FrameCodec::kLz4, is_shm});
    cases.push_back({Kind::kSample, FrameCodec::kNone, is_shm});
    cases.push_back({.kind = Kind::kSample,
                     .codec = FrameCodec::kLz4,
                     .is_shm = is_shm,
                     .keeps_frames = true});
  }
  for (const std::optional<FrameCodec> codec :
       {std::optional<FrameCodec>(), std::optional(FrameCodec::kLz4),
        std::optional(FrameCodec::kNone)}) {
    cases.push_back(
        {.kind = Kind::kSample, .codec = codec, .has_windows = true});
  }
  cases.push_back({.kind = Kind::kUpdate});
  cases.push_back({Kind::kEncode, FrameCodec::kLz4});
  return cases;
}

double SecondsOf(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
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
    throw InvalidArgument(fmt::format("{}: {} bytes; expected frames of {}",
                                      path, bytes.size(), kFrameBytes));
  }
  const auto view = std::as_bytes(std::span(bytes));
  return {{view.begin(), view.end()}};
}

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
  if (c.has_windows) {
    config.tables[0].n_step.n_step = 1;
    config.tables[0].n_step.window = kWindow;
  }
  return config;
}

void Serve(const ShardConfig& config, int endpoint_fd) {
  Shard shard(config, &Clock::Real());
  rpc::ZmqContext context;
  rpc::Server server(context, ReplayProtocol(), rpc::ServerOptions());
  Service service(&shard, {}, &Clock::Real());
  service.AttachTo(server);
  const std::string endpoint = server.Bind("tcp://127.0.0.1:*");
  if (write(endpoint_fd, endpoint.data(), endpoint.size()) < 0) return;
  close(endpoint_fd);
  server.Run();
}

// A service in a separate process, on a port of this host. No thread may run
// while it is made.
class ServiceProcess {
 public:
  explicit ServiceProcess(const Case& c) : config_(ConfigOf(c)) {
    std::array<int, 2> fds{};
    if (pipe(fds.data()) != 0) throw IoError::FromErrno("pipe", "", errno);
    pid_ = fork();
    if (pid_ < 0) throw IoError::FromErrno("fork", "", errno);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      Serve(config_, fds[1]);
      _exit(1);
    }
    close(fds[1]);
    std::array<char, 256> text{};
    const ssize_t size = read(fds[0], text.data(), text.size());
    close(fds[0]);
    if (size <= 0) throw CommError("bench_replay: the service did not start");
    endpoint_.assign(text.data(), static_cast<size_t>(size));
    clock_getcpuclockid(pid_, &cpu_clock_);
  }
  ~ServiceProcess() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  const StepShape& shape() const { return config_.shape; }
  BatchForm form() const { return config_.tables[0].n_step.form(); }
  double CpuSeconds() const { return SecondsOf(cpu_clock_); }

  nlohmann::json Status() const {
    rpc::ZmqContext context;
    rpc::Client client(context, ReplayProtocol(), rpc::ClientOptions());
    client.Connect(endpoint_);
    const rpc::CallReply reply = client.Call(kStatusKind, {});
    return nlohmann::json::parse(
        rpc::DecodeMessage<StatusReply>(reply.payload).json);
  }

 private:
  const ShardConfig config_;
  pid_t pid_ = -1;
  clockid_t cpu_clock_ = CLOCK_PROCESS_CPUTIME_ID;
  std::string endpoint_;
};

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

StepWriterOptions WriterOf(const Case& c, const ServiceProcess& service) {
  StepWriterOptions options;
  options.endpoint = service.endpoint();
  options.shape = service.shape();
  options.codec = c.codec.value_or(FrameCodec::kNone);
  return options;
}

struct Timing {
  int64_t items = 0;
  double wall_s = 0.0;
  double client_cpu_s = 0.0;
  double service_cpu_s = 0.0;
  double bytes_per_step = 0.0;  // stored
  int64_t item_bytes = 0;       // in the reader's batch
  int64_t received_bytes = 0;   // by the reader, without shared memory
};

// Reads the clocks when it is made, and adds what has passed since to `timing`.
class Stopwatch {
 public:
  explicit Stopwatch(const ServiceProcess* service)
      : service_(service),
        wall_(SecondsOf(CLOCK_MONOTONIC)),
        client_cpu_(SecondsOf(CLOCK_PROCESS_CPUTIME_ID)),
        service_cpu_(ServiceSeconds()) {}

  double WallSeconds() const { return SecondsOf(CLOCK_MONOTONIC) - wall_; }
  void Read(Timing* timing) const {
    timing->wall_s = WallSeconds();
    timing->client_cpu_s = SecondsOf(CLOCK_PROCESS_CPUTIME_ID) - client_cpu_;
    timing->service_cpu_s = ServiceSeconds() - service_cpu_;
  }

 private:
  double ServiceSeconds() const {
    return service_ == nullptr ? 0.0 : service_->CpuSeconds();
  }

  const ServiceProcess* service_;
  double wall_, client_cpu_, service_cpu_;
};

template <typename Step>
Timing TimeFor(const ServiceProcess* service, double seconds,
               const Step& step) {
  Timing timing;
  const Stopwatch watch(service);
  while (watch.WallSeconds() < seconds) timing.items += step();
  watch.Read(&timing);
  return timing;
}

Timing RunInsert(const Case& c, const Frames& frames, double seconds) {
  const ServiceProcess service(c);
  Timing timing;
  const Stopwatch watch(&service);
  const auto until = Clock::Real().Now() + FromSeconds(seconds);
  std::vector<std::unique_ptr<Thread>> threads;
  threads.reserve(static_cast<size_t>(c.writers));
  for (int i = 0; i < c.writers; ++i) {
    threads.push_back(
        std::make_unique<Thread>("env", [&](const Thread::StopToken&) {
          StepWriter writer(WriterOf(c, service));
          Write(writer, service.shape(), frames, until, INT64_MAX);
        }));
  }
  for (auto& thread : threads) thread->Join();
  watch.Read(&timing);
  const nlohmann::json status = service.Status();
  const nlohmann::json& table = status.at("tables").at(0);
  timing.items = table.at("inserts").get<int64_t>();
  timing.bytes_per_step = status.at("memory").at("bytes").get<double>() /
                          table.at("size").get<double>();
  return timing;
}

void Fill(const Case& c, const ServiceProcess& service, const Frames& frames) {
  StepWriter writer(WriterOf(c, service));
  Write(writer, service.shape(), frames,
        Clock::Real().Now() + std::chrono::minutes(5),
        c.codec ? 10'000 : 200'000);
}

Timing RunSample(const Case& c, const Frames& frames, double seconds) {
  const ServiceProcess service(c);
  Fill(c, service, frames);
  BatchReaderOptions options;
  options.endpoints = {service.endpoint()};
  options.shape = service.shape();
  options.window = service.form().window;
  options.batch_size = kBatch;
  options.prefetch = 4;
  options.decode_threads = 2;
  options.importance.exponent = 0.4;
  options.shares_memory = c.is_shm;
  if (c.keeps_frames) options.kept_frames.max_bytes = int64_t{1} << 34;
  BatchReader reader(options);
  Batch batch;
  const auto step = [&] {
    if (reader.Next(Clock::Real().Now() + std::chrono::seconds(30), &batch) !=
        ReadResult::kOk) {
      throw CommError("bench_replay: no batch");
    }
    return batch.size;
  };
  TimeFor(&service, seconds / 10, step);
  // measured with the store full
  while (c.keeps_frames &&
         reader.metrics().kept_frames_bytes < 10'000 * kFrameBytes) {
    step();
  }
  const int64_t received = reader.metrics().received_bytes;
  Timing timing = TimeFor(&service, seconds, step);
  timing.received_bytes = reader.metrics().received_bytes - received;
  timing.item_bytes = service.form().BytesOf(service.shape()).total();
  if ((reader.metrics().memory_replies > 0) != c.is_shm) {
    throw CommError("bench_replay: batches did not come by " + c.Name());
  }
  return timing;
}

Timing RunUpdate(const Case& c, double seconds) {
  const ServiceProcess service(c);
  Fill(c, service, {});
  rpc::ZmqContext context;
  rpc::Client client(context, ReplayProtocol(), rpc::ClientOptions());
  client.Connect(service.endpoint());
  UpdateRequest request{"default", {}};
  for (uint32_t i = 0; i < kBatch; ++i) {
    request.updates.push_back({{i * 701, 0}, 2.0f});
  }
  return TimeFor(&service, seconds, [&] {
    // a hundred one way, and one whose answer says that all are in
    for (int i = 0; i < 100; ++i) {
      if (client.SendOneWay(kUpdateKind, request.Encode(),
                            std::chrono::seconds(30)) != rpc::SendResult::kOk) {
        throw CommError("bench_replay: an update could not be sent");
      }
    }
    const rpc::CallReply reply = client.Call(kUpdateKind, request.Encode());
    if (rpc::DecodeMessage<UpdateReply>(reply.payload).num_updated != kBatch) {
      throw CommError("bench_replay: an update did not arrive");
    }
    return int64_t{101} * kBatch;
  });
}

// Time that a writer's thread spends on compression.
Timing RunEncode(const Case& c, const Frames& frames, double seconds) {
  constexpr int64_t kChunk = 8;
  FrameBlockEncoder encoder(*c.codec, kFrameBytes, kChunk);
  int64_t step = 0;
  size_t bytes = 0;
  Timing timing = TimeFor(nullptr, seconds, [&] {
    for (int64_t i = 0; i < kChunk; ++i) encoder.Add(frames.Of(step++));
    bytes += encoder.Finish().size();
    return kChunk;
  });
  timing.bytes_per_step =
      static_cast<double>(bytes) / static_cast<double>(timing.items);
  return timing;
}

Timing Run(const Case& c, const Frames& frames, double seconds) {
  switch (c.kind) {
    case Kind::kInsert:
      return RunInsert(c, frames, seconds);
    case Kind::kSample:
      return RunSample(c, frames, seconds);
    case Kind::kUpdate:
      return RunUpdate(c, seconds);
    case Kind::kEncode:
      break;
  }
  return RunEncode(c, frames, seconds);
}

void RunCase(const Case& c, const Frames& frames, double seconds) {
  const Timing timing = Run(c, c.codec ? frames : Frames(), seconds);
  const auto items = static_cast<double>(timing.items);
  metrics::JsonObject line;
  line.Add("name", c.Name())
      .Add("value", items / timing.wall_s)
      .Add("unit", c.kind == Kind::kEncode ? "frames/s" : "items/s")
      .Add("items", timing.items)
      .Add("client_cpu_us", 1e6 * timing.client_cpu_s / items)
      .Add("service_cpu_us", 1e6 * timing.service_cpu_s / items);
  if (timing.bytes_per_step > 0.0) {
    line.Add("bytes_per_step", timing.bytes_per_step);
  }
  if (timing.item_bytes > 0) {
    line.Add("item_bytes", timing.item_bytes)
        .Add("received_bytes_per_item",
             static_cast<double>(timing.received_bytes) / items);
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
