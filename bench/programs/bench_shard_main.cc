// Measures the replay without a network: what a service can do at most.
//
//   bench_shard [--list] [--filter SUBSTRING] [--seconds S] [--frames FILE.u8]
//
// One JSON line per case. The pixel cases need 84x84x3 frames recorded by
// bench/run/record_frames.py; without --frames they are left out.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/json_lines.h"
#include "base/rng.h"
#include "base/thread.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/format/frame_codec.h"
#include "replay/table/shard.h"

namespace replicant::replay {
namespace {

constexpr int64_t kBatch = 256;
constexpr int64_t kFrameBytes = 84 * 84 * 3;
constexpr int64_t kStateItems = 1'000'000;
constexpr int64_t kPixelSteps = 20'000;

// The results of a case.
struct Result {
  double value = 0.0;
  std::string unit = "items/s";
  std::vector<std::pair<std::string, double>> extra;
};

struct Options {
  double seconds = 2.0;
  std::string frames;
};

double SecondsSince(Clock::TimePoint since) {
  return ToSeconds(Clock::Real().Now() - since);
}

// Processor time of this process, which other work on the machine leaves alone.
double CpuSeconds() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) +
         1e-9 * static_cast<double>(time.tv_nsec);
}

// Calls `work`, which does so many items, until the time is over.
Result Rate(double seconds, const std::function<int64_t()>& work) {
  const auto start = Clock::Real().Now();
  const double cpu_start = CpuSeconds();
  int64_t items = 0;
  double spent = 0.0;
  while ((spent = SecondsSince(start)) < seconds) items += work();
  const double cpu = CpuSeconds() - cpu_start;
  return {.value = static_cast<double>(items) / spent,
          .extra = {{"items_per_cpu_s", static_cast<double>(items) / cpu}}};
}

constexpr PriorityFade kNoFade = {};
// DR.Q's.
constexpr PriorityFade kFade = {.base = 0.9999, .floor = 0.1};

// The state items of the peers' benchmark: 24 + 6 numbers, n = 5.
ShardConfig StateConfig(const PriorityFade& fade = kNoFade) {
  ShardConfig config;
  config.shape = {.observation_bytes = 24 * 4, .action_bytes = 6 * 4};
  config.tables = {{.name = "state",
                    .max_size = kStateItems,
                    .priority_fade = fade,
                    .n_step = {.n_step = 5},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize}}};
  return config;
}

ShardConfig PixelConfig() {
  ShardConfig config;
  config.shape = {.action_bytes = 6 * 4, .frame_bytes = kFrameBytes};
  config.tables = {{.name = "pixels",
                    .max_size = kPixelSteps,
                    .n_step = {.n_step = 3, .stack = 3},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize}}};
  return config;
}

// Chunks of 32 steps of one endless episode.
std::vector<std::byte> StateGroup(const ShardConfig& config, int64_t first) {
  ChunkBuilder builder(config.shape, 1, first);
  std::vector<std::byte> row(
      static_cast<size_t>(config.shape.observation_bytes));
  for (int64_t i = 0; i < 32; ++i) {
    std::memcpy(row.data(), &i, sizeof(i));
    builder.AddStep(row, std::span(row).first(24), 1.0f, 1.0f);
  }
  return builder.Finish({});
}

// Inserts chunks of `make(first step)` one after the other.
class Feeder {
 public:
  Feeder(Shard* shard, std::function<std::vector<std::byte>(int64_t)> make)
      : shard_(shard), make_(std::move(make)) {}

  // Returns the number of steps.
  int64_t Insert() {
    std::vector<std::byte> block = make_(next_step_);
    const ChunkView view(block, shard_->config().shape);
    const int64_t steps = view.num_steps();
    const InsertResult result =
        shard_->TryInsert(1, ++sequence_, std::move(block));
    REPLICANT_CHECK(result == InsertResult::kInserted, "not inserted");
    next_step_ += steps;
    return steps;
  }

 private:
  Shard* shard_;
  std::function<std::vector<std::byte>(int64_t)> make_;
  int64_t next_step_ = 0;
  uint64_t sequence_ = 0;
};

std::unique_ptr<Shard> FullStateShard(const PriorityFade& fade = kNoFade) {
  auto shard = std::make_unique<Shard>(StateConfig(fade), &Clock::Real());
  Feeder feeder(shard.get(), [&](int64_t first) {
    return StateGroup(shard->config(), first);
  });
  for (int64_t steps = 0; steps < kStateItems + 100;) steps += feeder.Insert();
  return shard;
}

Result InsertState(const Options& options, const PriorityFade& fade) {
  Shard shard(StateConfig(fade), &Clock::Real());
  Feeder feeder(
      &shard, [&](int64_t first) { return StateGroup(shard.config(), first); });
  return Rate(options.seconds, [&] { return feeder.Insert(); });
}

// Draws a batch and copies what a reader gets of it into one buffer.
Result SampleState(const Options& options, const PriorityFade& fade) {
  const auto shard = FullStateShard(fade);
  const auto row = static_cast<size_t>(shard->config().shape.observation_bytes);
  std::vector<std::byte> out(kBatch * (2 * row + 24));
  return Rate(options.seconds, [&] {
    SampledBatch batch;
    REPLICANT_CHECK_EQ(shard->TrySample(0, kBatch, "bench", &batch), kBatch);
    std::byte* at = out.data();
    for (const SampledItem& item : batch.items) {
      const Chunk& first = batch.ChunkOf(item, item.step);
      const Chunk& last = batch.ChunkOf(item, item.step + item.n);
      const int64_t i = item.step - first.view.first_step();
      std::memcpy(at, first.view.Observation(i).data(), row);
      std::memcpy(at + row, first.view.Action(i).data(), 24);
      const int64_t j = item.step + item.n - last.view.first_step();
      std::memcpy(at + row + 24, last.view.Observation(j).data(), row);
      at += 2 * row + 24;
    }
    return kBatch;
  });
}

Result Update(const Options& options, const PriorityFade& fade) {
  const auto shard = FullStateShard(fade);
  SampledBatch batch;
  REPLICANT_CHECK_EQ(shard->TrySample(0, 100 * kBatch, "bench", &batch),
                     100 * kBatch);
  // the draws are stratified: shuffled, as draws of a hundred batches would lie
  RandomStream random(1, "updates");
  std::shuffle(batch.items.begin(), batch.items.end(), random);
  std::vector<PriorityUpdate> updates(batch.items.size());
  for (size_t i = 0; i < updates.size(); ++i) {
    updates[i] = {batch.items[i].key, static_cast<float>(random.Uniform())};
  }
  size_t at = 0;
  return Rate(options.seconds, [&] {
    at = (at + kBatch) % updates.size();
    return shard->UpdatePriorities(0, std::span(updates).subspan(at, kBatch));
  });
}

// How long the thread that takes a snapshot of 1e6 items is held, and another
// one that draws batches meanwhile; at most of several.
Result CheckpointPause(const Options& /*options*/) {
  const auto shard = FullStateShard();
  double longest = 0.0, longest_draw = 0.0;
  std::atomic<bool> is_done{false};
  Thread reader("reader", [&](const Thread::StopToken&) {
    while (!is_done.load()) {
      SampledBatch batch;
      const auto start = Clock::Real().Now();
      REPLICANT_CHECK_EQ(shard->TrySample(0, kBatch, "bench", &batch), kBatch);
      longest_draw = std::max(longest_draw, SecondsSince(start));
    }
  });
  for (int i = 0; i < 5; ++i) {
    const auto start = Clock::Real().Now();
    const ShardSnapshot snapshot = shard->TakeSnapshot();
    longest = std::max(longest, SecondsSince(start));
  }
  is_done.store(true);
  reader.Join();
  Result result = {.value = longest * 1e3, .unit = "ms"};
  result.extra = {{"items", static_cast<double>(kStateItems)},
                  {"longest_draw_ms", longest_draw * 1e3}};
  return result;
}

// Bytes of the files of a folder.
double FolderBytes(const std::filesystem::path& folder) {
  double bytes = 0.0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    bytes += static_cast<double>(file.file_size());
  }
  return bytes;
}

// Reads all files of a folder, as fast as they can be read.
double SecondsToRead(const std::filesystem::path& folder) {
  const auto start = Clock::Real().Now();
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    REPLICANT_CHECK(!ReadFile(file.path()).empty(), "an empty file");
  }
  return SecondsSince(start);
}

Result CheckpointSave(const Options& /*options*/) {
  const auto shard = FullStateShard();
  const TemporaryFolder folder;
  const CheckpointOptions where = {.folder = folder.path()};
  auto start = Clock::Real().Now();
  double cpu_start = CpuSeconds();
  {
    Checkpointer checkpointer(where, shard.get());
    checkpointer.Save();
  }
  Result result = {.value = SecondsSince(start), .unit = "s"};
  const double cpu_s = CpuSeconds() - cpu_start;
  cpu_start = CpuSeconds();
  start = Clock::Real().Now();
  Shard restored(StateConfig(), &Clock::Real());
  const Checkpointer checkpointer(where, &restored);
  const double restore_s = SecondsSince(start);
  const auto items = static_cast<double>(restored.Status().tables[0].size);
  result.extra = {{"cpu_s", cpu_s},
                  {"restore_s", restore_s},
                  {"restore_cpu_s", CpuSeconds() - cpu_start},
                  {"items", items},
                  {"mb", FolderBytes(folder.path()) / 1e6},
                  {"read_s", SecondsToRead(folder.path())}};
  return result;
}

// --- pixels ---

std::vector<std::byte> LoadFrames(const Options& options) {
  const std::string text = ReadFile(options.frames);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// Compresses and inserts chunks of 8 frames.
class PixelFeeder {
 public:
  PixelFeeder(Shard* shard, FrameCodec codec, std::vector<std::byte> frames)
      : frames_(std::move(frames)),
        encoder_(codec, kFrameBytes, 8),
        feeder_(shard, [this, shard](int64_t first) {
          return Make(shard->config().shape, first);
        }) {}
  int64_t Insert() { return feeder_.Insert(); }

 private:
  std::vector<std::byte> Make(const StepShape& shape, int64_t first) {
    const auto count = static_cast<int64_t>(frames_.size()) / kFrameBytes;
    ChunkBuilder builder(shape, 1, first);
    const std::vector<std::byte> action(24);
    for (int64_t i = first; i < first + 8; ++i) {
      const int64_t frame = i % count;
      encoder_.Add(std::span(frames_).subspan(
          static_cast<size_t>(frame * kFrameBytes), kFrameBytes));
      builder.AddStep({}, action, 1.0f, 1.0f);
    }
    return builder.Finish(encoder_.Finish());
  }

  std::vector<std::byte> frames_;
  FrameBlockEncoder encoder_;
  Feeder feeder_;
};

Result InsertPixels(const Options& options, FrameCodec codec) {
  Shard shard(PixelConfig(), &Clock::Real());
  PixelFeeder feeder(&shard, codec, LoadFrames(options));
  Result result = Rate(options.seconds, [&] { return feeder.Insert(); });
  const ShardStatus status = shard.Status();
  const double bytes_per_step = static_cast<double>(status.size_bytes) /
                                static_cast<double>(8 * status.num_chunks);
  result.extra.push_back({"bytes_per_step", bytes_per_step});
  return result;
}

// Draws a batch and decodes the frames of both stacks of every item.
Result SamplePixels(const Options& options, FrameCodec codec) {
  Shard shard(PixelConfig(), &Clock::Real());
  PixelFeeder feeder(&shard, codec, LoadFrames(options));
  for (int64_t steps = 0; steps < kPixelSteps;) steps += feeder.Insert();
  std::vector<std::byte> out(kBatch * 6 * kFrameBytes);
  FrameDecoder decoder;
  return Rate(options.seconds, [&] {
    SampledBatch batch;
    REPLICANT_CHECK_EQ(shard.TrySample(0, kBatch, "bench", &batch), kBatch);
    for (size_t i = 0; i < batch.items.size(); ++i) {
      const SampledItem& item = batch.items[i];
      int64_t begin = std::max<int64_t>(0, item.step - 2);
      const int64_t end = item.step + item.n + 1;
      std::byte* at = out.data() + i * 6 * kFrameBytes;
      // chunk by chunk, the frames of [begin, end)
      while (begin < end) {
        const ChunkView& view = batch.ChunkOf(item, begin).view;
        const int64_t count = std::min(end, view.end_observation()) - begin;
        const auto bytes = static_cast<size_t>(count * kFrameBytes);
        decoder.Decode(FrameBlockView(view.frames()), begin - view.first_step(),
                       count, {at, bytes});
        at += bytes;
        begin += count;
      }
    }
    return kBatch;
  });
}

struct Case {
  std::string name;
  bool needs_frames;
  std::function<Result(const Options&)> run;
};

std::vector<Case> Cases() {
  const std::string prefix = "replay/in-process/";
  std::vector<Case> cases;
  const auto add = [&](const std::string& name, const auto& run) {
    for (const PriorityFade& fade : {kNoFade, kFade}) {
      const char* const kind = fade.is_on() ? "faded/" : "";
      cases.push_back({fmt::format("{}{}{}", prefix, kind, name), false,
                       [=](const Options& o) { return run(o, fade); }});
    }
  };
  add("insert/state", InsertState);
  add("sample/state-256", SampleState);
  add("update/256", Update);
  cases.push_back({prefix + "checkpoint/pause", false, CheckpointPause});
  cases.push_back({prefix + "checkpoint/save", false, CheckpointSave});
  for (const FrameCodec codec :
       {FrameCodec::kNone, FrameCodec::kLz4, FrameCodec::kZstd}) {
    const std::string kind = fmt::format("pixels-84-{}", ToString(codec));
    cases.push_back(
        {prefix + "insert/" + kind, true,
         [codec](const Options& o) { return InsertPixels(o, codec); }});
    cases.push_back(
        {prefix + "sample/" + kind + "-256", true,
         [codec](const Options& o) { return SamplePixels(o, codec); }});
  }
  return cases;
}

}  // namespace
}  // namespace replicant::replay

int main(int argc, char** argv) {
  using replicant::metrics::JsonObject;
  CLI::App app("Measures the replay without a network.");
  bool list = false;
  std::string filter;
  replicant::replay::Options options;
  app.add_flag("--list", list, "print the names of the cases");
  app.add_option("--filter", filter, "run the cases whose name holds this");
  app.add_option("--seconds", options.seconds, "per case");
  app.add_option("--frames", options.frames, "84x84x3 frames, raw bytes");
  CLI11_PARSE(app, argc, argv);

  for (const auto& item : replicant::replay::Cases()) {
    if (item.name.find(filter) == std::string::npos) continue;
    if (list) {
      fmt::print("{}\n", item.name);
      continue;
    }
    if (item.needs_frames && options.frames.empty()) continue;
    const auto result = item.run(options);
    JsonObject line;
    line.Add("name", item.name).Add("value", result.value);
    line.Add("unit", result.unit);
    for (const auto& [key, value] : result.extra) line.Add(key, value);
    fmt::print("{}\n", line.ToString());
    std::fflush(stdout);
  }
}
