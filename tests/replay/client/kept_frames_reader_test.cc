#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include "replay/client/batch_reader.h"
#include "tests/replay/client/batch_rows.h"

namespace replicant::replay {
namespace {

using std::chrono::seconds;
using testing::After;
using testing::AreEqual;
using testing::EpisodeMaker;
using testing::Insert;
using testing::Load;
using testing::MakePixels;
using testing::RowOf;
using testing::RunningService;
using testing::StackedTable;

// Whether the frames of two batches have the same bytes, wherever they lie.
bool HaveEqualFrames(const Batch& a, const Batch& b) {
  FrameRoom of_a, of_b;
  for (int64_t row = 0; row < a.size; ++row) {
    const ItemFrames x = a.FramesOf(row, of_a);
    const ItemFrames y = b.FramesOf(row, of_b);
    if (testing::Joined(x.frames, 300) != testing::Joined(y.frames, 300) ||
        testing::Joined(x.next_frames, 300) !=
            testing::Joined(y.next_frames, 300)) {
      return false;
    }
  }
  return true;
}

// Two services that draw the same; one reader keeps all frames, the newest few,
// or none. Steps are inserted while batches are drawn.
TEST(KeptFramesReaderTest, KeptFramesGiveTheSameBatches) {
  for (const FrameCodec codec : {FrameCodec::kNone, FrameCodec::kLz4}) {
    for (const bool shares_memory : {true, false}) {
      for (const bool decompresses : {true, false}) {
        for (const int64_t max_bytes : {int64_t{1} << 30, int64_t{4000}}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", ToString(codec),
                                   shares_memory, decompresses, max_bytes));
          const EpisodeMaker maker = MakePixels(codec);
          RunningService service(StackedTable(maker)),
              twin(StackedTable(maker));
          BatchReaderOptions options{.endpoints = {service.endpoint()},
                                     .shape = maker.shape,
                                     .batch_size = 32,
                                     .prefetch = 1,
                                     .shares_memory = shares_memory};
          BatchReader plain(options);
          options.endpoints = {twin.endpoint()};
          options.kept_frames = {.max_bytes = max_bytes,
                                 .decompresses = decompresses};
          BatchReader keeps(options);
          Batch a, b;
          for (uint64_t episode = 1; episode <= 8; ++episode) {
            const auto num_steps = static_cast<int64_t>(3 * episode - 2);
            Insert(service.shard(), maker, 1, episode, num_steps);
            Insert(twin.shard(), maker, 1, episode, num_steps);
            // one batch at a time, so that both see the same steps
            plain.SetLimit(1);
            keeps.SetLimit(1);
            ASSERT_EQ(plain.Next(After(seconds(60)), &a), ReadResult::kOk);
            ASSERT_EQ(keeps.Next(After(seconds(60)), &b), ReadResult::kOk);
            ASSERT_TRUE(AreEqual(a.observations, b.observations));
            ASSERT_TRUE(AreEqual(a.frames, b.frames));
            ASSERT_TRUE(AreEqual(a.next_frames, b.next_frames));
            ASSERT_EQ(a.keys, b.keys);
          }
          const auto give_up = After(seconds(60));
          while (keeps.metrics().kept_frames_bytes == 0 &&
                 Clock::Real().Now() < give_up) {
            std::this_thread::yield();
          }
          EXPECT_GT(keeps.metrics().kept_frames_bytes, 0);
          EXPECT_LE(keeps.metrics().kept_frames_bytes, max_bytes);
        }
      }
    }
  }
}

// The same with frames that the decode threads leave where they lie.
TEST(KeptFramesReaderTest, FramesThatStayAreTheSame) {
  for (const FrameCodec codec : {FrameCodec::kNone, FrameCodec::kLz4}) {
    for (const bool decompresses : {true, false}) {
      for (const int64_t max_bytes : {int64_t{1} << 30, int64_t{4000}}) {
        SCOPED_TRACE(
            fmt::format("{} {} {}", ToString(codec), decompresses, max_bytes));
        const EpisodeMaker maker = MakePixels(codec);
        RunningService service(StackedTable(maker)), twin(StackedTable(maker));
        BatchReaderOptions options{.endpoints = {service.endpoint()},
                                   .shape = maker.shape,
                                   .batch_size = 32,
                                   .prefetch = 1};
        BatchReader plain(options);
        options.endpoints = {twin.endpoint()};
        options.fills_frames = false;
        options.kept_frames = {.max_bytes = max_bytes,
                               .decompresses = decompresses};
        BatchReader keeps(options);
        Batch a, b;
        for (uint64_t episode = 1; episode <= 8; ++episode) {
          const auto num_steps = static_cast<int64_t>(3 * episode - 2);
          Insert(service.shard(), maker, 1, episode, num_steps);
          Insert(twin.shard(), maker, 1, episode, num_steps);
          plain.SetLimit(1);
          keeps.SetLimit(1);
          ASSERT_EQ(plain.Next(After(seconds(60)), &a), ReadResult::kOk);
          ASSERT_EQ(keeps.Next(After(seconds(60)), &b), ReadResult::kOk);
          ASSERT_EQ(a.keys, b.keys);
          ASSERT_TRUE(HaveEqualFrames(a, b));
        }
      }
    }
  }
}

void ReadNext(BatchReader& reader, Batch* batch) {
  ASSERT_EQ(reader.Next(After(seconds(60)), batch), ReadResult::kOk);
}

// Reads until the frames of an episode of 100 steps are kept, and one batch
// more, perhaps requested before.
void ReadUntilKept(BatchReader& reader, Batch* batch) {
  const auto give_up = After(seconds(60));
  while (reader.metrics().kept_frames_bytes < 101 * 300 &&
         Clock::Real().Now() < give_up) {
    ReadNext(reader, batch);
  }
  ReadNext(reader, batch);
}

// A device finds a frame by its number, so each has one once it is kept.
TEST(KeptFramesReaderTest, FramesThatStayHaveTheirNumbers) {
  const EpisodeMaker maker = MakePixels();
  for (const int64_t decode_threads : {0, 2}) {
    SCOPED_TRACE(decode_threads);
    RunningService service(StackedTable(maker));
    Insert(service.shard(), maker, 1, 1, 100);
    BatchReader reader({.endpoints = {service.endpoint()},
                        .shape = maker.shape,
                        .batch_size = 64,
                        .prefetch = 1,
                        .decode_threads = decode_threads,
                        .fills_frames = false,
                        .kept_frames = {.max_bytes = 1 << 30}});
    Batch batch;
    ReadUntilKept(reader, &batch);
    ReadNext(reader, &batch);
    FrameRoom room;
    for (int64_t i = 0; i < batch.size; ++i) {
      const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
      const ItemFrames found = batch.FramesOf(i, room);
      // the frame of step 0 is the first that came
      for (int64_t j = 0; j < 3; ++j) {
        const int64_t of_frame = std::max<int64_t>(0, step - 2 + j);
        ASSERT_EQ(found.numbers[static_cast<size_t>(j)],
                  found.numbers[2] - static_cast<uint64_t>(step - of_frame));
      }
      ASSERT_GT(found.numbers[0], 0U);
      ASSERT_EQ(found.next_numbers[2] - found.numbers[2],
                static_cast<uint64_t>(batch.num_steps[static_cast<size_t>(i)]));
    }
  }
}

// A batch of frames that are kept brings none: less than one frame a row.
TEST(KeptFramesReaderTest, AFrameTravelsOnce) {
  const EpisodeMaker maker = MakePixels(FrameCodec::kNone);
  RunningService service(StackedTable(maker));
  Insert(service.shard(), maker, 1, 1, 100);
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 256,
                      .prefetch = 1,
                      .shares_memory = false,
                      .kept_frames = {.max_bytes = 1 << 30}});
  Batch batch;
  ReadUntilKept(reader, &batch);
  const int64_t before = reader.metrics().received_bytes;
  for (int i = 0; i < 10; ++i) ReadNext(reader, &batch);
  // 16 bytes of each observation, 8 of the action, and the columns
  EXPECT_LT(reader.metrics().received_bytes - before, 11 * 256 * 300);
  for (int64_t i = 0; i < batch.size; ++i) {
    const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
    ASSERT_EQ(RowOf(batch.frames, i, 900), maker.Stack(1, step, 3));
  }
}

TEST(KeptFramesReaderTest, TheStoreReportsItsFigures) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(StackedTable(maker));
  Insert(service.shard(), maker, 1, 1, 100);
  BatchReaderOptions options{.endpoints = {service.endpoint()},
                             .shape = maker.shape,
                             .batch_size = 64,
                             .prefetch = 1};
  EXPECT_TRUE(BatchReader(options).Scalars().empty());
  // 30 of the 101 frames fit
  options.kept_frames.max_bytes = 30 * (300 + 8);
  BatchReader reader(options);
  Batch batch;
  const auto value = [&](const std::string& name) {
    for (const auto& [own, number] : reader.Scalars()) {
      if (own == name) return number;
    }
    return -1.0;
  };
  const auto give_up = After(seconds(60));
  while (reader.metrics().drawn_kept_frames == 0 &&
         Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  // a service sends no more frames than the store has room for
  const double fetched = value("frame_store_fetched_frames");
  EXPECT_GE(fetched, 20.0);
  EXPECT_LE(fetched - value("frame_store_evicted_frames"), 31.0);
  EXPECT_GT(value("frame_store_bytes"), 0.0);
  EXPECT_LE(value("frame_store_bytes"), 30 * (300 + 8));
  EXPECT_GT(value("frame_store_hit_share"), 0.05);
  EXPECT_LT(value("frame_store_hit_share"), 0.6);
}

// Each service has a store, whose serials are its own.
TEST(KeptFramesReaderTest, SeveralServicesHaveAStoreEach) {
  const EpisodeMaker maker = MakePixels();
  RunningService first(StackedTable(maker)), second(StackedTable(maker));
  Insert(first.shard(), maker, 1, 1, 40);
  Insert(second.shard(), maker, 1, 2, 80);
  BatchReader reader({.endpoints = {first.endpoint(), second.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 32,
                      .kept_frames = {.max_bytes = 1 << 20}});
  Batch batch;
  const auto give_up = After(seconds(60));
  int num_checked = 0;
  while (num_checked < 20 && Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    if (reader.metrics().fetched_frames == 41 + 81) ++num_checked;
    for (int64_t i = 0; i < batch.size; ++i) {
      const auto episode = Load<uint64_t>(batch.observations, 2 * i);
      const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
      ASSERT_EQ(RowOf(batch.frames, i, 900), maker.Stack(episode, step, 3));
    }
  }
  EXPECT_EQ(num_checked, 20);
  EXPECT_GT(reader.metrics().drawn_kept_frames, 0);
}

// A service that restarts without its state gives the serials again, to other
// frames.
TEST(KeptFramesReaderTest, FramesOfAServiceBeforeARestartAreForgotten) {
  const EpisodeMaker maker = MakePixels();
  auto service = std::make_unique<RunningService>(StackedTable(maker));
  const std::string endpoint = service->endpoint();
  Insert(service->shard(), maker, 1, 1, 40);
  BatchReader reader({.endpoints = {endpoint},
                      .shape = maker.shape,
                      .batch_size = 8,
                      .prefetch = 3,
                      .kept_frames = {.max_bytes = 1 << 30}});
  Batch batch;
  const auto give_up = After(seconds(60));
  while (reader.metrics().kept_frames_bytes == 0 &&
         Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  service.reset();
  service = std::make_unique<RunningService>(StackedTable(maker), endpoint);
  Insert(service->shard(), maker, 1, 2, 40);
  int num_of_second = 0;
  while (num_of_second < 10 && Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    const auto episode = Load<uint64_t>(batch.observations, 0);
    if (episode == 2) ++num_of_second;
    for (int64_t i = 0; i < batch.size; ++i) {
      const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
      ASSERT_EQ(RowOf(batch.frames, i, 900), maker.Stack(episode, step, 3));
    }
  }
  EXPECT_EQ(num_of_second, 10);
}

}  // namespace
}  // namespace replicant::replay
