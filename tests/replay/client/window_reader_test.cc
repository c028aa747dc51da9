// Tables of windows by way of the service and its clients; the form of a window
// itself is tested in batch_codec_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "replay/client/batch_reader.h"
#include "replay/client/local_replay.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using std::chrono::seconds;
using testing::After;
using testing::EpisodeMaker;
using testing::RunningService;

constexpr int64_t kWindow = 6;
constexpr int64_t kStack = 3;
constexpr int64_t kEpisodeSteps = 14;

// Windows of six steps, four of which overlap, next to transitions of three.
ShardConfig BothForms(const EpisodeMaker& maker) {
  ShardConfig config =
      testing::OpenTable(maker, {.n_step = 3, .stack = kStack});
  config.tables.push_back(config.tables[0]);
  config.tables[1].name = "windows";
  config.tables[1].n_step = {.stack = kStack, .window = kWindow, .period = 2};
  return config;
}

void InsertEpisodes(Shard& shard, const EpisodeMaker& maker) {
  uint64_t sequence = 0;
  for (uint64_t episode = 1; episode <= 3; ++episode) {
    for (auto& chunk : maker.Chunks(episode, kEpisodeSteps)) {
      ASSERT_EQ(shard.TryInsert(1, ++sequence, std::move(chunk)),
                InsertResult::kInserted);
    }
  }
}

struct Mark {
  uint64_t episode = 0;
  int64_t step = 0;
};
Mark MarkOf(const HostBuffer& observations, int64_t row) {
  Mark mark;
  std::memcpy(&mark, observations.data() + row * 16, sizeof(mark));
  return mark;
}

// Row `row` holds what the episode maker wrote, and zeros beyond its steps.
void ExpectWindow(const Batch& batch, int64_t row, const EpisodeMaker& maker,
                  std::span<const std::byte> frames) {
  const auto [episode, t] = MarkOf(batch.observations, row * (kWindow + 1));
  const int64_t k = std::min(kWindow, kEpisodeSteps - t);
  ASSERT_EQ(t % 2, 0);
  ASSERT_EQ(batch.num_steps[static_cast<size_t>(row)], k);
  for (int64_t i = 0; i <= kWindow; ++i) {
    const Mark mark = MarkOf(batch.observations, row * (kWindow + 1) + i);
    ASSERT_EQ(mark.episode, i <= k ? episode : 0);
    ASSERT_EQ(mark.step, i <= k ? t + i : 0);
  }
  for (int64_t i = 0; i < kWindow; ++i) {
    const auto at = static_cast<size_t>(row * kWindow + i);
    uint64_t action = 0;
    std::memcpy(&action, batch.actions.data() + at * 8, 8);
    const auto step = static_cast<uint64_t>(t + i);
    ASSERT_EQ(action, i < k ? episode * 1000 + step : 0);
    ASSERT_EQ(batch.rewards[at], i < k ? EpisodeMaker::Reward(t + i) : 0.0f);
    ASSERT_EQ(batch.discounts[at], i < k ? 1.0f : 0.0f);
  }
  std::vector<std::byte> wanted;
  for (int64_t j = 0; j < kStack + k; ++j) {
    const auto frame =
        maker.Frame(episode, std::max<int64_t>(0, t - kStack + 1 + j));
    wanted.insert(wanted.end(), frame.begin(), frame.end());
  }
  wanted.resize((kWindow + kStack) * 300);
  ASSERT_TRUE(std::ranges::equal(frames, wanted));
}

void ExpectWindows(const Batch& batch, const EpisodeMaker& maker) {
  ASSERT_EQ(batch.form, (BatchForm{.stack = kStack, .window = kWindow}));
  FrameRoom room;
  for (int64_t row = 0; row < batch.size; ++row) {
    ASSERT_NO_FATAL_FAILURE(
        ExpectWindow(batch, row, maker,
                     testing::Joined(batch.FramesOf(row, room).frames, 300)));
  }
}

// Through shared memory and by messages, decoded by the reader and by its user,
// with and without compression.
TEST(WindowReaderTest, GivesTheWindowsThatWereInserted) {
  for (const FrameCodec codec : {FrameCodec::kNone, FrameCodec::kLz4}) {
    const EpisodeMaker maker = testing::MakePixels(codec);
    RunningService service(BothForms(maker));
    InsertEpisodes(service.shard(), maker);
    for (const bool shares_memory : {true, false}) {
      for (const int64_t decode_threads : {0, 1}) {
        SCOPED_TRACE(::testing::Message()
                     << ToString(codec) << " shares memory " << shares_memory
                     << " decode threads " << decode_threads);
        BatchReader reader({.endpoints = {service.endpoint()},
                            .shape = maker.shape,
                            .table = "windows",
                            .window = kWindow,
                            .batch_size = 24,
                            .decode_threads = decode_threads,
                            .shares_memory = shares_memory});
        Batch batch;
        for (int i = 0; i < 5; ++i) {
          ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
          ASSERT_NO_FATAL_FAILURE(ExpectWindows(batch, maker));
          reader.UpdatePriorities(batch, std::vector<float>(24, 0.5f));
        }
      }
    }
  }
}

// As above, by a reader that keeps every frame: it draws until batches bring
// none.
TEST(WindowReaderTest, WindowsOfKeptFramesAreTheSame) {
  const EpisodeMaker maker = testing::MakePixels();
  RunningService service(BothForms(maker));
  InsertEpisodes(service.shard(), maker);
  for (const int64_t decode_threads : {0, 1}) {
    SCOPED_TRACE(decode_threads);
    BatchReader reader({.endpoints = {service.endpoint()},
                        .shape = maker.shape,
                        .table = "windows",
                        .window = kWindow,
                        .batch_size = 24,
                        .prefetch = 1,
                        .decode_threads = decode_threads,
                        .kept_frames = {.max_bytes = 1 << 20}});
    Batch batch;
    const auto give_up = After(seconds(60));
    int64_t drawn = 0, kept = 0;
    do {
      const BatchReaderMetrics before = reader.metrics();
      ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
      ASSERT_NO_FATAL_FAILURE(ExpectWindows(batch, maker));
      const BatchReaderMetrics now = reader.metrics();
      drawn = now.drawn_frames - before.drawn_frames;
      kept = now.drawn_kept_frames - before.drawn_kept_frames;
    } while ((drawn == 0 || kept < drawn) && Clock::Real().Now() < give_up);
    EXPECT_GT(drawn, 0);
    EXPECT_EQ(kept, drawn);
  }
}

// Both tables hold the same steps, once.
TEST(WindowReaderTest, TransitionsAndWindowsAreServedSideBySide) {
  const EpisodeMaker maker = testing::MakePixels();
  RunningService service(BothForms(maker)), alone([&] {
    ShardConfig config = BothForms(maker);
    config.tables.pop_back();
    return config;
  }());
  InsertEpisodes(service.shard(), maker);
  InsertEpisodes(alone.shard(), maker);
  const ShardStatus status = service.shard().Status();
  EXPECT_EQ(status.tables[0].size, 3 * kEpisodeSteps);
  EXPECT_EQ(status.tables[1].size, 3 * kEpisodeSteps / 2);
  EXPECT_EQ(status.size_bytes, alone.shard().Status().size_bytes);
  BatchReader transitions(
      {.endpoints = {service.endpoint()}, .shape = maker.shape});
  BatchReader windows({.endpoints = {service.endpoint()},
                       .shape = maker.shape,
                       .table = "windows",
                       .window = std::nullopt,
                       .batch_size = 8});
  Batch batch;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(transitions.Next(After(seconds(60)), &batch), ReadResult::kOk);
    ASSERT_EQ(batch.form, BatchForm{.stack = kStack});
    // the same batch's memory goes from one reader to the other
    ASSERT_EQ(windows.Next(After(seconds(60)), &batch), ReadResult::kOk);
    ASSERT_NO_FATAL_FAILURE(ExpectWindows(batch, maker));
  }
}

TEST(WindowReaderTest, AReaderOfTheOtherFormIsRefused) {
  const EpisodeMaker maker = testing::MakePixels();
  RunningService service(BothForms(maker));
  InsertEpisodes(service.shard(), maker);
  const auto why = [&](const std::string& table, int64_t window) {
    BatchReader reader({.endpoints = {service.endpoint()},
                        .name = "learner",
                        .shape = maker.shape,
                        .table = table,
                        .window = window});
    return replicant::testing::MessageOf<CommError>([&] {
      Batch batch;
      static_cast<void>(reader.Next(After(seconds(60)), &batch));
    });
  };
  EXPECT_EQ(why("windows", 0),
            service.endpoint() +
                ": table 'windows' has windows of 6 steps, but reader "
                "'learner' expects n-step transitions; hint: give each "
                "workload a separate table");
  EXPECT_EQ(why("default", 8),
            service.endpoint() +
                ": table 'default' has n-step transitions, but reader "
                "'learner' expects windows of 8 steps; hint: give each "
                "workload a separate table");
}

// As a client would be that does not ask what a table has.
TEST(WindowReaderTest, ARequestForTheOtherFormIsRefused) {
  const EpisodeMaker maker;
  RunningService service(BothForms(maker));
  rpc::ZmqContext context;
  rpc::Client client(context, ReplayProtocol(), {.name = "stranger"});
  client.Connect(service.endpoint());
  const auto why = [&](const std::string& table, uint32_t window) {
    const rpc::CallReply reply = client.Call(
        kSampleKind, rpc::EncodeMessage(SampleRequest{table, 1, 0, {}, window}),
        {.timeout = seconds(60)});
    return reply.error_text;
  };
  EXPECT_EQ(why("windows", 0),
            "replay.sample: table 'windows' has windows of 6 steps, but reader "
            "'stranger' expects n-step transitions");
  EXPECT_EQ(why("default", 6),
            "replay.sample: table 'default' has n-step transitions, but reader "
            "'stranger' expects windows of 6 steps");
}

TEST(WindowReaderTest, ALocalReplayGivesWindows) {
  const EpisodeMaker maker = testing::MakePixels();
  LocalReplayOptions options;
  options.shard = BothForms(maker);
  std::swap(options.shard.tables[0], options.shard.tables[1]);
  options.batch_size = 16;
  options.group_steps = 4;
  LocalReplay replay(options);
  LocalReplay::Writer writer(&replay, 1);
  for (uint64_t episode = 1; episode <= 3; ++episode) {
    writer.BeginEpisode();
    for (int64_t t = 0; t < kEpisodeSteps; ++t) {
      writer.Append({.observation = maker.Observation(episode, t),
                     .frame = maker.Frame(episode, t),
                     .action = maker.Action(episode, t),
                     .reward = EpisodeMaker::Reward(t)});
    }
    writer.EndEpisode(maker.Observation(episode, kEpisodeSteps),
                      maker.Frame(episode, kEpisodeSteps));
  }
  Batch batch;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(replay.Next(&batch));
    ASSERT_NO_FATAL_FAILURE(ExpectWindows(batch, maker));
  }
}

}  // namespace
}  // namespace replicant::replay
