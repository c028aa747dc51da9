// Measures the replay service from end to end: the service in one process, its
// clients in another. One JSON line per case.
//
// "shm" is what clients of the service's host do by default: batches come
// through shared memory, steps go over tcp loopback. "tcp" is what clients of
// other hosts do: everything goes over tcp. An item counts when it is in the
// replay, or stacked and decompressed in the reader's buffer. In the cases of a
// learner it counts when it is in the step's input tensors: a learner of two
// threads that computes nothing. "kept" readers keep the frames that they get.
// With a "table" an item counts when the frames that it lacks are in the table
// and its slots in the step's input; with "table-gathered", when the step has
// made its stacks on the processor.
//
// Pixel cases take recorded frames (bench/run/record_frames.py): what a
// codec costs and saves depends on the picture.
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
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
#include "base/tensor/host_tensor.h"
#include "base/thread.h"
#include "bench/programs/service_process.h"
#include "bench/programs/stacks_in_step.h"
#include "learner/workloads/agent/transition_pipeline.h"
#include "replay/client/batch_reader.h"
#include "replay/client/step_writer.h"

namespace replicant::replay {
namespace {

constexpr int64_t kFrameBytes = 84 * 84 * 3;
// cheetah-run: 17 numbers seen and 6 given, f32
constexpr int64_t kObservationBytes = 17 * 4;
constexpr int64_t kActionBytes = 6 * 4;
constexpr int64_t kEpisodeSteps = 500;
constexpr int64_t kPixelSteps = 10'000;  // that samples are drawn from
constexpr int64_t kBatch = 256;
constexpr int64_t kWindow = 8;

enum class Kind { kInsert, kSample, kLearner, kUpdate, kEncode };

struct Case {
  Kind kind = Kind::kInsert;
  std::optional<FrameCodec> codec = {};  // none: state
  bool is_shm = true;
  int writers = 1;
  bool has_windows = false;
  bool keeps_frames = false;  // the reader
  int services = 1;           // that share the steps
  // A learner's: whether frames are a table of its step. The table is on a
  // device, whose work is not counted, or the processor gathers its stacks.
  enum class Table { kNone, kOnDevice, kGathered };
  Table table = Table::kNone;

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
      case Kind::kLearner:
        return fmt::format("replay/learner/{}-{}/{}{}{}", what, kBatch,
                           transport, keeps_frames ? "/kept" : "",
                           services > 1 ? fmt::format("/services-{}", services)
                           : table == Table::kNone     ? ""
                           : table == Table::kOnDevice ? "/table"
                                                       : "/table-gathered");
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
    for (const bool keeps_frames : {false, true}) {
      cases.push_back({.kind = Kind::kLearner,
                       .codec = FrameCodec::kLz4,
                       .is_shm = is_shm,
                       .keeps_frames = keeps_frames});
    }
    for (const auto table : {Case::Table::kOnDevice, Case::Table::kGathered}) {
      cases.push_back({.kind = Kind::kLearner,
                       .codec = FrameCodec::kLz4,
                       .is_shm = is_shm,
                       .keeps_frames = true,
                       .table = table});
    }
  }
  cases.push_back({.kind = Kind::kLearner,
                   .codec = FrameCodec::kLz4,
                   .is_shm = false,
                   .keeps_frames = true,
                   .services = 3});
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

using Services = std::vector<const ServiceProcess*>;

// Reads the clocks when it is made, and adds what has passed since to `timing`.
class Stopwatch {
 public:
  explicit Stopwatch(Services services)
      : services_(std::move(services)),
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
    double sum = 0.0;
    for (const ServiceProcess* service : services_) {
      sum += service->CpuSeconds();
    }
    return sum;
  }

  const Services services_;
  double wall_, client_cpu_, service_cpu_;
};

template <typename Step>
Timing TimeFor(const Services& services, double seconds, const Step& step) {
  Timing timing;
  const Stopwatch watch(services);
  while (watch.WallSeconds() < seconds) timing.items += step();
  watch.Read(&timing);
  return timing;
}

Timing RunInsert(const Case& c, const Frames& frames, double seconds) {
  const ServiceProcess service(ConfigOf(c));
  Timing timing;
  const Stopwatch watch({&service});
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
        (c.codec ? kPixelSteps : 200'000) / c.services);
}

// The services of a case, filled.
class FilledServices {
 public:
  FilledServices(const Case& c, const Frames& frames) {
    for (int i = 0; i < c.services; ++i) {
      processes_.push_back(std::make_unique<ServiceProcess>(ConfigOf(c)));
      all_.push_back(processes_.back().get());
    }
    for (const ServiceProcess* service : all_) Fill(c, *service, frames);
  }

  const Services& all() const { return all_; }
  const ServiceProcess& first() const { return *all_[0]; }

 private:
  std::vector<std::unique_ptr<ServiceProcess>> processes_;
  Services all_;
};

BatchReaderOptions ReaderOf(const Case& c, const FilledServices& services) {
  BatchReaderOptions options;
  for (const ServiceProcess* service : services.all()) {
    options.endpoints.push_back(service->endpoint());
  }
  options.shape = services.first().shape();
  options.window = services.first().form().window;
  options.batch_size = kBatch;
  options.prefetch = 4;
  options.decode_threads = 2;
  options.importance.exponent = 0.4;
  options.shares_memory = c.is_shm;
  if (c.keeps_frames) options.kept_frames.max_bytes = int64_t{1} << 34;
  return options;
}

Clock::TimePoint Patience() {
  return Clock::Real().Now() + std::chrono::seconds(30);
}

// Times step(), which draws a batch of `reader` and returns its size.
template <typename Step>
Timing TimeReads(const Case& c, const FilledServices& services,
                 const BatchReader& reader, double seconds, const Step& step) {
  TimeFor(services.all(), seconds / 10, step);
  // measured with the store full
  while (c.keeps_frames &&
         reader.metrics().kept_frames_bytes < kPixelSteps * kFrameBytes) {
    step();
  }
  const int64_t received = reader.metrics().received_bytes;
  Timing timing = TimeFor(services.all(), seconds, step);
  timing.received_bytes = reader.metrics().received_bytes - received;
  const ServiceProcess& first = services.first();
  timing.item_bytes = first.form().BytesOf(first.shape()).total();
  if ((reader.metrics().memory_replies > 0) != c.is_shm) {
    throw CommError("bench_replay: batches did not come by " + c.Name());
  }
  return timing;
}

Timing RunSample(const Case& c, const Frames& frames, double seconds) {
  const FilledServices services(c, frames);
  BatchReader reader(ReaderOf(c, services));
  Batch batch;
  return TimeReads(c, services, reader, seconds, [&] {
    if (reader.Next(Patience(), &batch) != ReadResult::kOk) {
      throw CommError("bench_replay: no batch");
    }
    return batch.size;
  });
}

// As programs/learner does on two processors: the step's threads, which have
// nothing else to do here, make the input.
Timing RunLearner(const Case& c, const Frames& frames, double seconds) {
  constexpr int kThreads = 2;
  const FilledServices services(c, frames);
  BatchReaderOptions options = ReaderOf(c, services);
  options.prefetch = BatchReaderOptions().prefetch;
  options.decode_threads = 0;
  BatchReader reader(options);
  const TableConfig table = ConfigOf(c).tables[0];
  const agents::LearningSpec spec{
      .task = {.has_pixels = true,
               .observation = Shape({84, 84, 3 * table.n_step.stack}),
               .frame_stack = table.n_step.stack,
               .action_minimum = std::vector<double>(6, -1.0),
               .action_maximum = std::vector<double>(6, 1.0)},
      .n_step = table.n_step.n_step};
  std::optional<learner::StacksInStep> stacks;
  if (c.table != Case::Table::kNone) {
    stacks.emplace(spec, kBatch, kPixelSteps, kThreads);
  }
  learner::TransitionPipeline pipeline(spec, kBatch, kThreads, &reader,
                                       stacks ? &stacks->frames() : nullptr);
  // a step reads one set while the next is written
  std::vector<HostTensor> tensors;
  for (const auto& input : pipeline.specs()) {
    for (int i = 0; i < 2; ++i) tensors.emplace_back(input.dtype, input.shape);
  }
  std::array<std::vector<MutableTensorView>, 2> inputs;
  for (size_t i = 0; i < tensors.size(); ++i) {
    inputs[i % 2].push_back(tensors[i].mutable_view());
  }
  size_t turn = 0;
  const auto newest = [&](std::string_view name) -> TensorView {
    const auto found =
        std::ranges::find(pipeline.specs(), name, &replicator::InputSpec::name);
    return inputs[(turn + 1) % 2]
                 [static_cast<size_t>(found - pipeline.specs().begin())];
  };
  return TimeReads(c, services, reader, seconds, [&] {
    if (pipeline.NextAhead(Patience(), inputs[turn++ % 2]) !=
        replicator::NextResult::kOk) {
      throw CommError("bench_replay: no batch");
    }
    pipeline.UseAhead();
    if (stacks) {
      stacks->Take({newest("observation"), newest("next_observation")},
                   c.table == Case::Table::kGathered);
    }
    return pipeline.batch().size;
  });
}

Timing RunUpdate(const Case& c, double seconds) {
  const ServiceProcess service(ConfigOf(c));
  Fill(c, service, {});
  rpc::ZmqContext context;
  rpc::Client client(context, ReplayProtocol(), rpc::ClientOptions());
  client.Connect(service.endpoint());
  UpdateRequest request{"default", {}};
  for (uint32_t i = 0; i < kBatch; ++i) {
    request.updates.push_back({{i * 701, 0}, 2.0f});
  }
  return TimeFor({&service}, seconds, [&] {
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
  Timing timing = TimeFor({}, seconds, [&] {
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
    case Kind::kLearner:
      return RunLearner(c, frames, seconds);
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
  app.add_option("--filter", filter,
                 "run the case of this name, else those that contain it");
  app.add_option("--seconds", seconds, "time per case, default 1")
      ->check(CLI::Range(0.001, 3600.0));
  app.add_option("--frames", frames_path,
                 "raw frames of 84 x 84 x 3 bytes, for the pixel cases");
  CLI11_PARSE(app, argc, argv);
  InitLogging({.role = "bench_replay"});
  const Frames frames =
      frames_path.empty() ? Frames() : ReadFrames(frames_path);
  const std::vector<Case> cases = AllCases();
  const bool is_one = std::ranges::count(cases, filter, &Case::Name) > 0;
  for (const Case& c : cases) {
    if (is_one ? c.Name() != filter
               : c.Name().find(filter) == std::string::npos) {
      continue;
    }
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
