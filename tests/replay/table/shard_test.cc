#include "replay/table/shard.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "base/error.h"
#include "base/thread.h"
#include "tests/replay/episodes.h"

namespace replicant::replay {
namespace {

using std::chrono::seconds;

constexpr StepShape kShape = {.observation_bytes = 4, .action_bytes = 4};

std::vector<std::byte> Episode(uint64_t number, int64_t num_steps) {
  ChunkBuilder builder(kShape, number, 0);
  const std::vector<std::byte> row(4);
  for (int64_t i = 0; i < num_steps; ++i) builder.AddStep(row, row, 1.0f, 1.0f);
  builder.AddLastObservation(row);
  return builder.Finish({});
}

ShardConfig OneTable(const RateLimiterConfig& limiter) {
  ShardConfig config;
  config.shape = kShape;
  config.tables = {{.name = "t", .max_size = 100, .rate_limiter = limiter}};
  return config;
}
constexpr RateLimiterConfig kFromTwo = {.mode = RateLimiterMode::kMinSize,
                                        .min_size_to_sample = 2};
// Two items, then one insert per sample, with room for four.
constexpr RateLimiterConfig kTight = {
    .samples_per_insert = 1.0, .min_size_to_sample = 2, .error_buffer = 4.0};

TEST(ShardTest, AWaitingReaderIsServedByTheInsertItWaitsFor) {
  FakeClock clock;
  Shard shard(OneTable(kFromTwo), &clock);
  SampledBatch batch;
  SampleResult result = SampleResult::kClosed;
  Thread reader("reader", [&](const Thread::StopToken&) {
    result = shard.Sample(0, 3, "reader", clock.Now() + seconds(10), &batch);
  });
  clock.AwaitWaiters(1);
  EXPECT_EQ(shard.TryInsert(1, 1, Episode(1, 2)), InsertResult::kInserted);
  reader.Join();
  EXPECT_EQ(result, SampleResult::kOk);
  EXPECT_EQ(batch.items.size(), 3u);
  EXPECT_EQ(batch.table_size, 2);
}

TEST(ShardTest, AReaderGetsWhatThereIsByItsDeadline) {
  FakeClock clock;
  Shard shard(OneTable(kTight), &clock);
  ASSERT_EQ(shard.TryInsert(1, 1, Episode(1, 2)), InsertResult::kInserted);
  SampledBatch batch;
  SampleResult result = SampleResult::kOk;
  Thread reader("reader", [&](const Thread::StopToken&) {
    result = shard.Sample(0, 9, "reader", clock.Now() + seconds(10), &batch);
  });
  clock.AwaitWaiters(1);
  clock.Advance(seconds(11));
  reader.Join();
  EXPECT_EQ(result, SampleResult::kTimeout);
  EXPECT_EQ(batch.items.size(), 4u);
}

// 6 items fill the buffer; the other 2 go in with the samples that make room.
TEST(ShardTest, AWriterWaitsForSamplesAndItsItemsAreNotLost) {
  FakeClock clock;
  Shard shard(OneTable(kTight), &clock);
  InsertResult result = InsertResult::kClosed;
  Thread writer("writer", [&](const Thread::StopToken&) {
    result = shard.Insert(7, 1, Episode(1, 8), clock.Now() + seconds(60));
  });
  clock.AwaitWaiters(1);
  clock.Advance(seconds(5));
  const WaitStatus wait = shard.Status().tables[0].insert_wait;
  EXPECT_TRUE(wait.is_waiting);
  EXPECT_EQ(wait.who, "writer 0x7");
  EXPECT_EQ(wait.waiting_s, 5.0);
  EXPECT_EQ(wait.why,
            "samples lag: 6 inserts and 0 samples, 4.0 samples behind 1 per "
            "insert; at most 4.0 are allowed");

  SampledBatch batch;
  EXPECT_EQ(shard.TrySample(0, 2, "reader", &batch), 2);
  writer.Join();
  EXPECT_EQ(result, InsertResult::kInserted);
  EXPECT_EQ(shard.Status().tables[0].size, 8);
  EXPECT_FALSE(shard.Status().tables[0].insert_wait.is_waiting);
}

// An open episode holds its chunks, so the eviction of its items frees nothing.
TEST(ShardTest, ItemsOfAnOpenEpisodeStayWhereNoRoomIs) {
  const testing::EpisodeMaker maker;
  ShardConfig config;
  config.shape = maker.shape;
  config.max_bytes = 20'000;
  const RateLimiterConfig limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1};
  config.tables = {
      {.name = "short", .rate_limiter = limiter},
      {.name = "long", .n_step = {.n_step = 1000}, .rate_limiter = limiter}};
  FakeClock clock;
  Shard shard(config, &clock);
  uint64_t sequence = 0;
  InsertResult result = InsertResult::kInserted;
  for (auto& chunk : maker.Chunks(1, 1000, /*is_open=*/true)) {
    result = shard.TryInsert(7, ++sequence, std::move(chunk));
    if (result != InsertResult::kInserted) break;
  }
  EXPECT_EQ(result, InsertResult::kNoRoom);
  const ShardStatus status = shard.Status();
  EXPECT_EQ(status.evicted_items, 0);
  EXPECT_EQ(status.tables[0].size, status.inserted_steps - 1);
  // a writer that gives its episode up makes room
  shard.CloseWriter(7);
  EXPECT_EQ(shard.TryInsert(8, 1, maker.Chunks(2, 4)[0]),
            InsertResult::kInserted);
}

TEST(ShardTest, AWriterThatGivesUpHasSentItsStepsOnce) {
  FakeClock clock;
  Shard shard(OneTable(kTight), &clock);
  EXPECT_EQ(shard.Insert(7, 1, Episode(1, 8), clock.Now()),
            InsertResult::kWait);
  EXPECT_EQ(shard.Status().tables[0].size, 6);
  // sent again, as after a broken connection
  EXPECT_EQ(shard.TryInsert(7, 1, Episode(1, 8)), InsertResult::kWait);
  SampledBatch batch;
  EXPECT_EQ(shard.TrySample(0, 8, "reader", &batch), 8);
  EXPECT_EQ(shard.Resume(7), InsertResult::kInserted);
  EXPECT_EQ(shard.Status().tables[0].inserts, 8);
  EXPECT_EQ(shard.LastSequence(7), 1u);
}

TEST(ShardTest, AWaitingReaderStandsInTheStatusWithTheReason) {
  FakeClock clock;
  Shard shard(OneTable(kFromTwo), &clock);
  SampledBatch batch;
  EXPECT_EQ(shard.TrySample(0, 1, "learner 3", &batch), 0);
  clock.Advance(seconds(4));
  const WaitStatus wait = shard.Status().tables[0].sample_wait;
  EXPECT_EQ(wait.who, "learner 3");
  EXPECT_EQ(wait.waiting_s, 4.0);
  EXPECT_EQ(wait.why, "the table holds 0 items; min_size_to_sample is 2");
}

// The draws are uniform, and inserts go on even if another service has them.
TEST(ShardTest, PrioritiesThatAreAllZeroStopNeitherSide) {
  FakeClock clock;
  Shard shard(OneTable(kTight), &clock);
  ASSERT_EQ(shard.TryInsert(1, 1, Episode(1, 6)), InsertResult::kInserted);
  SampledBatch batch;
  ASSERT_EQ(shard.TrySample(0, 1, "r", &batch), 1);
  for (uint32_t slot = 0; slot < 6; ++slot) {
    const PriorityUpdate update = {{slot, 0}, 0.0f};
    ASSERT_EQ(shard.UpdatePriorities(0, {&update, 1}), 1);
  }
  EXPECT_EQ(shard.Status().tables[0].mass, 0.0);
  batch = {};
  ASSERT_EQ(shard.TrySample(0, 1, "r", &batch), 1);
  EXPECT_DOUBLE_EQ(batch.items[0].probability, 1.0 / 6);
  EXPECT_EQ(batch.items[0].priority, 0.0f);
  EXPECT_EQ(shard.TryInsert(1, 2, Episode(2, 1)), InsertResult::kInserted);
  EXPECT_EQ(shard.TrySample(0, 1, "r", &batch), 1);
}

TEST(ShardTest, ASampledBatchOutlivesItsItems) {
  FakeClock clock;
  auto shard = std::make_unique<Shard>(OneTable(kFromTwo), &clock);
  ASSERT_EQ(shard->TryInsert(1, 1, Episode(5, 2)), InsertResult::kInserted);
  SampledBatch batch;
  ASSERT_EQ(shard->TrySample(0, 1, "r", &batch), 1);
  shard.reset();
  EXPECT_EQ(batch.ChunkOf(batch.items[0], 0).view.episode(), 5u);
}

TEST(ShardTest, CloseEndsAllWaits) {
  FakeClock clock;
  // the writer waits at the first table, the reader at the second, so that
  // neither serves the other
  ShardConfig config = OneTable(kTight);
  config.tables.push_back({.name = "u",
                           .max_size = 100,
                           .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                            .min_size_to_sample = 50}});
  Shard shard(config, &clock);
  ASSERT_EQ(shard.Insert(1, 1, Episode(1, 6), clock.Now()),
            InsertResult::kInserted);
  const auto later = clock.Now() + seconds(99);
  SampleResult sampled = SampleResult::kOk;
  InsertResult inserted = InsertResult::kInserted;
  SampledBatch batch;
  Thread writer("writer", [&](const Thread::StopToken&) {
    inserted = shard.Insert(2, 1, Episode(1, 20), later);
  });
  clock.AwaitWaiters(1);
  Thread reader("reader", [&](const Thread::StopToken&) {
    sampled = shard.Sample(1, 1, "r", later, &batch);
  });
  clock.AwaitWaiters(2);
  shard.Close();
  writer.Join();
  reader.Join();
  EXPECT_EQ(inserted, InsertResult::kClosed);
  EXPECT_EQ(sampled, SampleResult::kClosed);
  EXPECT_EQ(shard.TryInsert(1, 2, Episode(2, 1)), InsertResult::kClosed);
}

// Catches races (under tsan) and lost wake-ups: two writers and two readers at
// a limiter that stops each side again and again.
TEST(ShardTest, WritersAndReadersOfManyThreadsKeepTheRatio) {
  constexpr int kEpisodes = 300;
  constexpr int64_t kSteps = 4;
  ShardConfig config = OneTable({.samples_per_insert = 2.0,
                                 .min_size_to_sample = 8,
                                 .error_buffer = 16.0});
  config.limits = {.insert_chunk = 4, .samples_in_flight = 16};
  Shard shard(config, &Clock::Real());
  const auto deadline = Clock::Real().Now() + seconds(60);
  std::vector<std::unique_ptr<Thread>> threads;
  for (uint64_t id = 1; id <= 2; ++id) {
    threads.push_back(
        std::make_unique<Thread>("writer", [&, id](const Thread::StopToken&) {
          for (uint64_t i = 1; i <= kEpisodes; ++i) {
            ASSERT_EQ(shard.Insert(id, i, Episode(i, kSteps), deadline),
                      InsertResult::kInserted);
          }
        }));
    threads.push_back(
        std::make_unique<Thread>("reader", [&](const Thread::StopToken&) {
          // what both writers bring, less the items before the first sample
          for (int i = 0; i < (kEpisodes * kSteps * 2 - 16) / 8; ++i) {
            SampledBatch batch;
            ASSERT_EQ(shard.Sample(0, 8, "reader", deadline, &batch),
                      SampleResult::kOk);
            std::vector<PriorityUpdate> updates;
            for (const SampledItem& item : batch.items) {
              updates.push_back({item.key, 0.5f + item.priority / 2});
            }
            shard.UpdatePriorities(0, updates);
          }
        }));
  }
  for (auto& thread : threads) thread->Join();
  const TableStatus table = shard.Status().tables[0];
  EXPECT_EQ(table.inserts, 2 * kEpisodes * kSteps);
  EXPECT_LE(std::abs(table.error), 16.0);
}

TEST(ShardTest, RefusesSettingsThatCannotWork) {
  const auto message = [](const ShardConfig& config) -> std::string {
    try {
      const Shard shard(config, &Clock::Real());
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no InvalidArgument";
  };
  ShardConfig config = OneTable(kTight);
  config.limits.samples_in_flight = 256;
  EXPECT_EQ(message(config),
            "table 't': rate_limiter: error_buffer 4 is below the 256 samples "
            "that readers request at once: no reader might get a full batch; "
            "hint: raise error_buffer to 256");
  config = OneTable(kTight);
  config.tables.push_back(config.tables[0]);
  EXPECT_EQ(message(config), "shard: two tables are called 't'");
  config = OneTable(kTight);
  config.tables[0].remover = SelectorKind::kUniform;
  EXPECT_EQ(message(config),
            "table 't': remover 'uniform' is not allowed; allowed: fifo, lifo, "
            "lowest_priority");
  config.tables.clear();
  EXPECT_EQ(message(config), "shard: no table");
}

// Would catch a learner that waits for ever beside writers without a fault.
TEST(ShardTest, NamesAMemoryThatHoldsTooFewItems) {
  const testing::EpisodeMaker maker;
  ShardConfig config;
  config.shape = maker.shape;
  config.max_bytes = 20'000;
  config.tables = {{.name = "t",
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1000}}};
  FakeClock clock;
  Shard shard(config, &clock);
  SampledBatch batch;
  ASSERT_EQ(shard.TrySample(0, 1, "learner", &batch), 0);
  for (uint64_t episode = 1; episode <= 500; ++episode) {
    ASSERT_EQ(shard.TryInsert(7, episode, maker.Chunks(episode, 4)[0]),
              InsertResult::kInserted);
  }
  clock.Advance(seconds(1));
  ASSERT_EQ(shard.TryInsert(7, 501, maker.Chunks(501, 4)[0]),
            InsertResult::kInserted);
  clock.Advance(seconds(1));
  const ShardStatus status = shard.Status();
  EXPECT_GT(status.evicted_items, 0);
  EXPECT_EQ(status.tables[0].stalled.side, "");
  EXPECT_EQ(status.tables[0].sample_wait.why,
            fmt::format("the table holds {} items; min_size_to_sample is 1000; "
                        "max_bytes 20000 evicted {} items",
                        status.tables[0].size, status.evicted_items));
}

// Whom a fleet waits for is named within 5 seconds.
TEST(ShardTest, NamesTheSideThatHasStalled) {
  FakeClock clock;
  Shard shard(OneTable(kTight), &clock);
  const auto stalled = [&] { return shard.Status().tables[0].stalled; };
  SampledBatch batch;
  ASSERT_EQ(shard.TrySample(0, 1, "learner", &batch), 0);
  EXPECT_EQ(stalled().side, "");
  clock.Advance(seconds(5));
  EXPECT_EQ(stalled().side, "writers");
  EXPECT_EQ(stalled().last, "");
  EXPECT_EQ(stalled().idle_s, 5.0);
  // they come, and stop again
  ASSERT_EQ(shard.TryInsert(10, 1, Episode(1, 2)), InsertResult::kInserted);
  EXPECT_EQ(stalled().side, "");
  ASSERT_EQ(shard.TrySample(0, 9, "learner", &batch), 4);
  EXPECT_EQ(stalled().side, "");
  clock.Advance(seconds(5));
  EXPECT_EQ(stalled().side, "writers");
  EXPECT_EQ(stalled().last, "writer 0xa");
  EXPECT_EQ(stalled().idle_s, 5.0);
  // now it is the reader that stops
  ASSERT_EQ(shard.TryInsert(10, 2, Episode(2, 1)), InsertResult::kInserted);
  ASSERT_EQ(shard.TrySample(0, 1, "learner", &batch), 1);
  ASSERT_EQ(shard.TryInsert(10, 3, Episode(3, 20)), InsertResult::kWait);
  EXPECT_EQ(stalled().side, "");
  clock.Advance(seconds(5));
  EXPECT_EQ(stalled().side, "readers");
  EXPECT_EQ(stalled().last, "learner");
  EXPECT_EQ(stalled().idle_s, 5.0);
  // nobody waits for them any more
  shard.CloseWriter(10);
  EXPECT_EQ(stalled().side, "");
}

TEST(ShardTest, BadPrioritiesChangeNothing) {
  FakeClock clock;
  Shard shard(OneTable(kFromTwo), &clock);
  ASSERT_EQ(shard.TryInsert(1, 1, Episode(1, 2)), InsertResult::kInserted);
  const PriorityUpdate updates[] = {{{0, 0}, 5.0f}, {{1, 0}, std::nanf("")}};
  try {
    shard.UpdatePriorities(0, updates);
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(), "table 't': priority nan must be finite and >= 0");
  }
  EXPECT_EQ(shard.Status().tables[0].mass, 2.0);
}

}  // namespace
}  // namespace replicant::replay
