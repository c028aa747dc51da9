#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "replay/client/batch_reader.h"
#include "tests/replay/client/batch_rows.h"

namespace replicant::replay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::After;
using testing::EpisodeMaker;
using testing::Insert;
using testing::Load;
using testing::MakePixels;
using testing::RowOf;
using testing::RunningService;
using testing::StackedTable;

TEST(SeveralServicesTest, AServiceThatSharesNoMemorySendsItsBatches) {
  const EpisodeMaker maker = MakePixels();
  RunningService shares(StackedTable(maker)),
      sends(StackedTable(maker), replicant::testing::OwnAddress(),
            RunningService::FastTicks(), {.shares_memory = false});
  Insert(shares.shard(), maker, 1, 1, 10);
  Insert(sends.shard(), maker, 1, 2, 10);
  BatchReader reader({.endpoints = {shares.endpoint(), sends.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 64});
  Batch batch;
  bool is_mixed = false;
  const auto give_up = After(seconds(60));
  while (!is_mixed && Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    for (int64_t i = 0; i < batch.size; ++i) {
      const auto episode = Load<uint64_t>(batch.observations, 2 * i);
      const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
      const int32_t shard = batch.shards[static_cast<size_t>(i)];
      ASSERT_EQ(episode, static_cast<uint64_t>(shard + 1));
      ASSERT_EQ(RowOf(batch.frames, i, 900), maker.Stack(episode, step, 3));
      is_mixed |= shard != batch.shards[0];
    }
  }
  EXPECT_TRUE(is_mixed);
  EXPECT_GT(shares.counts().memory_batches, 0);
  EXPECT_EQ(sends.counts().memory_batches, 0);
}

// Two services of 4 and 12 items: while all priorities are zero, each item is
// drawn with probability 1/16; once one service has a weight, it has all draws.
TEST(SeveralServicesTest, ServicesWhosePrioritiesAreAllZeroDrawUniformly) {
  const EpisodeMaker maker = MakePixels();
  std::vector<std::unique_ptr<RunningService>> services;
  BatchReaderOptions options{.shape = maker.shape, .batch_size = 64};
  for (const int64_t count : {4, 12}) {
    services.push_back(std::make_unique<RunningService>(StackedTable(maker)));
    Shard& shard = services.back()->shard();
    Insert(shard, maker, 1, services.size(), count);
    for (uint32_t slot = 0; slot < count; ++slot) {
      const PriorityUpdate update = {{slot, 0}, 0.0f};
      ASSERT_EQ(shard.UpdatePriorities(0, {&update, 1}), 1);
    }
    options.endpoints.push_back(services.back()->endpoint());
  }
  BatchReader reader(options);
  Batch batch;
  std::map<int32_t, int64_t> draws;
  for (int b = 0; b < 100; ++b) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    for (size_t i = 0; i < batch.shards.size(); ++i) {
      ASSERT_DOUBLE_EQ(batch.probabilities[i], 1.0 / 16);
      ++draws[batch.shards[i]];
    }
  }
  // systematic sampling: 16 of each batch of 64 from the first
  EXPECT_EQ(draws[0], 1600);
  EXPECT_EQ(draws[1], 4800);

  const PriorityUpdate update = {{2, 0}, 1.0f};
  ASSERT_EQ(services[0]->shard().UpdatePriorities(0, {&update, 1}), 1);
  const auto give_up = After(seconds(60));
  const auto has_all_draws = [&batch] {
    return std::ranges::all_of(batch.shards,
                               [](int32_t shard) { return shard == 0; }) &&
           std::ranges::all_of(batch.probabilities,
                               [](double p) { return p == 1.0; });
  };
  do {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  } while (!has_all_draws() && Clock::Real().Now() < give_up);
  EXPECT_TRUE(has_all_draws());
}

// Three services that hold 10, 20 and 70 of 100 items give each item the
// probability that one service with all of them gives it, and draw it as often.
TEST(SeveralServicesTest, ThreeShardsDrawAndWeighLikeOne) {
  const EpisodeMaker maker = MakePixels();
  std::vector<std::unique_ptr<RunningService>> services;
  BatchReaderOptions options{
      .shape = maker.shape, .batch_size = 64, .importance = {.exponent = 0.5}};
  double total = 0.0;
  std::map<uint64_t, std::map<int64_t, double>> priority;
  for (const int64_t count : {10, 20, 70}) {
    services.push_back(std::make_unique<RunningService>(StackedTable(maker)));
    Shard& shard = services.back()->shard();
    const auto episode = static_cast<uint64_t>(services.size());
    Insert(shard, maker, 1, episode, count);
    for (int64_t step = 0; step < count; ++step) {
      const auto p = static_cast<float>(1 + (step + count) % 4);
      // slots are given in the order of the steps
      const PriorityUpdate update = {{static_cast<uint32_t>(step), 0}, p};
      ASSERT_EQ(shard.UpdatePriorities(0, {&update, 1}), 1);
      priority[episode][step] = static_cast<double>(p);
      total += static_cast<double>(p);
    }
    options.endpoints.push_back(services.back()->endpoint());
  }
  BatchReader reader(options);
  Batch batch;
  const auto give_up = After(seconds(60));
  const auto knows_masses = [&] {
    for (size_t i = 0; i < batch.shards.size(); ++i) {
      const auto episode =
          Load<uint64_t>(batch.observations, 2 * static_cast<int64_t>(i));
      const auto step =
          Load<int64_t>(batch.observations, 2 * static_cast<int64_t>(i) + 1);
      if (std::abs(batch.probabilities[i] * total - priority[episode][step]) >
          1e-9) {
        return false;
      }
    }
    return batch.size > 0;
  };
  while (!knows_masses() && Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  std::map<uint64_t, std::map<int64_t, int64_t>> draws;
  constexpr int kBatches = 200;
  for (int b = 0; b < kBatches; ++b) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    ASSERT_TRUE(knows_masses());
    double least = 1.0;
    for (const double p : batch.probabilities) least = std::min(least, p);
    for (size_t i = 0; i < batch.shards.size(); ++i) {
      ASSERT_NEAR(batch.weights[i], std::sqrt(least / batch.probabilities[i]),
                  1e-6);
      const auto row = static_cast<int64_t>(i);
      ++draws[Load<uint64_t>(batch.observations, 2 * row)]
             [Load<int64_t>(batch.observations, 2 * row + 1)];
    }
  }
  for (const auto& [episode, steps] : priority) {
    for (const auto& [step, p] : steps) {
      const double expected = kBatches * 64 * p / total;
      // five sigma of independent draws; these are stratified, and vary less
      EXPECT_NEAR(static_cast<double>(draws[episode][step]), expected,
                  5 * std::sqrt(expected));
    }
  }
}

ShardConfig WithMinimum(const EpisodeMaker& maker, int64_t min_size) {
  ShardConfig config = StackedTable(maker);
  config.tables[0].rate_limiter.min_size_to_sample = min_size;
  return config;
}

// The minimum of two tables applies to their sum. Would catch draws from the
// table that is the first to be full.
TEST(SeveralServicesTest, TablesReachTheirMinimumTogether) {
  const EpisodeMaker maker = MakePixels();
  RunningService first(WithMinimum(maker, 5)), second(WithMinimum(maker, 5));
  Insert(first.shard(), maker, 1, 1, 6);
  Insert(second.shard(), maker, 1, 2, 3);
  BatchReader reader({.endpoints = {first.endpoint(), second.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 8,
                      .prefetch = 1});
  Batch batch;
  EXPECT_EQ(reader.Next(After(milliseconds(700)), &batch),
            ReadResult::kTimeout);
  Insert(second.shard(), maker, 1, 3, 1);
  // ten items are enough; the second table has too few to be drawn from
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  for (const double p : batch.probabilities) EXPECT_DOUBLE_EQ(p, 1.0 / 6);
  // five items: it has its share
  Insert(second.shard(), maker, 1, 4, 1);
  const auto give_up = After(seconds(60));
  while (batch.probabilities[0] > 0.1 && Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  for (const double p : batch.probabilities) EXPECT_DOUBLE_EQ(p, 1.0 / 11);
}

// Would catch writers that wait for draws, which wait for the other table.
TEST(SeveralServicesTest, ATableThatHoldsItsWritersUpIsDrawnFrom) {
  const EpisodeMaker maker = MakePixels();
  ShardConfig config = StackedTable(maker);
  config.tables[0].rate_limiter = {.mode = RateLimiterMode::kRatio,
                                   .samples_per_insert = 1.0,
                                   .min_size_to_sample = 5,
                                   .error_buffer = 2.0};
  RunningService first(config), second(config);
  uint64_t sequence = 0;
  for (auto& chunk : maker.Chunks(/*episode=*/1, /*num_steps=*/20)) {
    if (first.shard().TryInsert(1, ++sequence, std::move(chunk)) !=
        InsertResult::kInserted) {
      break;
    }
  }
  ASSERT_TRUE(first.shard().Status().tables[0].insert_wait.is_waiting);
  BatchReader reader({.endpoints = {first.endpoint(), second.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 2,
                      .prefetch = 1});
  Batch batch;
  EXPECT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
}

}  // namespace
}  // namespace replicant::replay
