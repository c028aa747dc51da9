#include "replay/client/batch_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "base/error.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::After;
using testing::EpisodeMaker;
using testing::MakePixels;
using testing::RunningService;

ShardConfig ConfigOf(const EpisodeMaker& maker) {
  return testing::OpenTable(maker, {.n_step = 3, .stack = 3});
}

void Insert(Shard& shard, const EpisodeMaker& maker, uint64_t writer,
            uint64_t episode, int64_t num_steps) {
  uint64_t sequence = shard.LastSequence(writer);
  for (auto& chunk : maker.Chunks(episode, num_steps)) {
    ASSERT_EQ(shard.TryInsert(writer, ++sequence, std::move(chunk)),
              InsertResult::kInserted);
  }
}

template <typename T>
T Load(const HostBuffer& buffer, int64_t index) {
  T value;
  std::memcpy(&value, buffer.data() + static_cast<size_t>(index) * sizeof(T),
              sizeof(T));
  return value;
}

std::vector<std::byte> RowOf(const HostBuffer& buffer, int64_t row,
                             int64_t size) {
  const auto bytes = buffer.bytes().subspan(static_cast<size_t>(row * size),
                                            static_cast<size_t>(size));
  return {bytes.begin(), bytes.end()};
}

TEST(BatchReaderTest, BatchesHoldTheStepsAndStacksThatWereInserted) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(ConfigOf(maker));
  for (uint64_t episode = 1; episode <= 5; ++episode) {
    Insert(service.shard(), maker, 1, episode,
           static_cast<int64_t>(3 * episode - 2));
  }
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 32,
                      .decode_threads = 2});
  Batch batch;
  for (int b = 0; b < 10; ++b) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    ASSERT_EQ(batch.size, 32);
    ASSERT_EQ(batch.form, BatchForm{.stack = 3});
    for (int64_t i = 0; i < batch.size; ++i) {
      // an observation is (episode, step)
      const auto episode = Load<uint64_t>(batch.observations, 2 * i);
      const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
      const auto next = Load<int64_t>(batch.next_observations, 2 * i + 1);
      const auto num_steps = static_cast<int64_t>(3 * episode - 2);
      ASSERT_EQ(Load<uint64_t>(batch.next_observations, 2 * i), episode);
      ASSERT_EQ(next, std::min(num_steps, step + 3));
      ASSERT_EQ(RowOf(batch.actions, i, 8), maker.Action(episode, step));
      ASSERT_EQ(RowOf(batch.frames, i, 900), maker.Stack(episode, step, 3));
      ASSERT_EQ(RowOf(batch.next_frames, i, 900),
                maker.Stack(episode, next, 3));
      float reward = 0.0f, discount = 1.0f;
      for (int64_t t = step; t < next; ++t) {
        reward += discount * EpisodeMaker::Reward(t);
        discount *= 0.99f;
      }
      const auto r = static_cast<size_t>(i);
      ASSERT_NEAR(batch.rewards[r], reward, 1e-5);
      ASSERT_NEAR(batch.discounts[r], discount, 1e-6);
      ASSERT_EQ(batch.weights[r], 1.0f);
      ASSERT_EQ(batch.probabilities[r], 1.0 / 35);
    }
  }
}

bool AreEqual(const HostBuffer& a, const HostBuffer& b) {
  return std::ranges::equal(a.bytes(), b.bytes());
}

// Two services that draw the same, one read through memory and one over tcp.
// Batches beyond the limit are not drawn.
TEST(BatchReaderTest, DrawsNoMoreThanItsLimit) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(ConfigOf(maker));
  Insert(service.shard(), maker, 1, 1, 10);
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 8,
                      .prefetch = 3});
  reader.SetLimit(5);
  Batch batch;
  for (int b = 0; b < 5; ++b) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    EXPECT_EQ(batch.total_steps, 10);
  }
  EXPECT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kPaused);
  EXPECT_EQ(service.shard().Status().tables[0].samples, 5 * 8);
  reader.SetLimit(1);
  EXPECT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  EXPECT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kPaused);
}

TEST(BatchReaderTest, SharedMemoryAndMessagesGiveTheSameBatches) {
  for (const FrameCodec codec :
       {FrameCodec::kNone, FrameCodec::kLz4, FrameCodec::kZstd}) {
    SCOPED_TRACE(ToString(codec));
    const EpisodeMaker maker = MakePixels(codec);
    RunningService service(ConfigOf(maker)), twin(ConfigOf(maker));
    for (uint64_t episode = 1; episode <= 5; ++episode) {
      const auto num_steps = static_cast<int64_t>(3 * episode - 2);
      Insert(service.shard(), maker, 1, episode, num_steps);
      Insert(twin.shard(), maker, 1, episode, num_steps);
    }
    BatchReaderOptions options{.endpoints = {service.endpoint()},
                               .shape = maker.shape,
                               .batch_size = 32,
                               .prefetch = 1,
                               .importance = {.exponent = 0.5}};
    BatchReader in_memory(options);
    options.endpoints = {twin.endpoint()};
    options.shares_memory = false;
    BatchReader by_message(options);
    Batch a, b;
    for (int i = 0; i < 20; ++i) {
      ASSERT_EQ(in_memory.Next(After(seconds(60)), &a), ReadResult::kOk);
      ASSERT_EQ(by_message.Next(After(seconds(60)), &b), ReadResult::kOk);
      ASSERT_NE(a.memory, nullptr);
      ASSERT_EQ(b.memory, nullptr);
      ASSERT_TRUE(AreEqual(a.observations, b.observations));
      ASSERT_TRUE(AreEqual(a.next_observations, b.next_observations));
      ASSERT_TRUE(AreEqual(a.actions, b.actions));
      ASSERT_TRUE(AreEqual(a.frames, b.frames));
      ASSERT_TRUE(AreEqual(a.next_frames, b.next_frames));
      ASSERT_EQ(a.rewards, b.rewards);
      ASSERT_EQ(a.discounts, b.discounts);
      ASSERT_EQ(a.priorities, b.priorities);
      ASSERT_EQ(a.weights, b.weights);
      ASSERT_EQ(a.probabilities, b.probabilities);
      ASSERT_EQ(a.keys, b.keys);
    }
    EXPECT_EQ(by_message.metrics().memory_replies, 0);
    EXPECT_GE(in_memory.metrics().memory_replies, 20);
    EXPECT_GT(by_message.metrics().received_bytes,
              2 * in_memory.metrics().received_bytes);
  }
}

// Two services that draw the same; one reader keeps all frames, the newest few,
// or none. Steps are inserted while batches are drawn.
TEST(BatchReaderTest, KeptFramesGiveTheSameBatches) {
  for (const FrameCodec codec : {FrameCodec::kNone, FrameCodec::kLz4}) {
    for (const bool shares_memory : {true, false}) {
      for (const bool decompresses : {true, false}) {
        for (const int64_t max_bytes : {int64_t{1} << 30, int64_t{4000}}) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", ToString(codec),
                                   shares_memory, decompresses, max_bytes));
          const EpisodeMaker maker = MakePixels(codec);
          RunningService service(ConfigOf(maker)), twin(ConfigOf(maker));
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

// A batch of frames that are kept brings none: less than one frame a row.
TEST(BatchReaderTest, AFrameTravelsOnce) {
  const EpisodeMaker maker = MakePixels(FrameCodec::kNone);
  RunningService service(ConfigOf(maker));
  Insert(service.shard(), maker, 1, 1, 100);
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 256,
                      .prefetch = 1,
                      .shares_memory = false,
                      .kept_frames = {.max_bytes = 1 << 30}});
  Batch batch;
  const auto next = [&] {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  };
  const auto give_up = After(seconds(60));
  while (reader.metrics().kept_frames_bytes < 101 * 300 &&
         Clock::Real().Now() < give_up) {
    next();
  }
  next();  // perhaps requested before all were kept
  const int64_t before = reader.metrics().received_bytes;
  for (int i = 0; i < 10; ++i) next();
  // 16 bytes of each observation, 8 of the action, and the columns
  EXPECT_LT(reader.metrics().received_bytes - before, 11 * 256 * 300);
  for (int64_t i = 0; i < batch.size; ++i) {
    const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
    ASSERT_EQ(RowOf(batch.frames, i, 900), maker.Stack(1, step, 3));
  }
}

// A service that restarts without its state gives the serials again, to other
// frames.
TEST(BatchReaderTest, FramesOfAServiceBeforeARestartAreForgotten) {
  const EpisodeMaker maker = MakePixels();
  auto service = std::make_unique<RunningService>(ConfigOf(maker));
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
  service = std::make_unique<RunningService>(ConfigOf(maker), endpoint);
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

// Without decode threads, whoever has a batch decodes its rows.
TEST(BatchReaderTest, CompressedBatchesAreDecodedRowByRow) {
  for (const bool shares_memory : {true, false}) {
    for (const FrameCodec codec : {FrameCodec::kNone, FrameCodec::kLz4}) {
      const EpisodeMaker maker = MakePixels(codec);
      RunningService service(ConfigOf(maker));
      Insert(service.shard(), maker, 1, 1, 10);
      BatchReader reader({.endpoints = {service.endpoint()},
                          .shape = maker.shape,
                          .batch_size = 32,
                          .decode_threads = 0,
                          .shares_memory = shares_memory});
      Batch batch;
      FrameDecoder decoder;
      std::vector<std::byte> memory(2 * 900);
      for (int b = 0; b < 10; ++b) {
        ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
        const bool is_direct = codec == FrameCodec::kNone && shares_memory;
        ASSERT_EQ(batch.compressed.empty(), is_direct);
        for (int64_t i = 0; i < batch.size; ++i) {
          const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
          const auto next = Load<int64_t>(batch.next_observations, 2 * i + 1);
          const auto stacks = batch.FramesOf(i, decoder, memory);
          ASSERT_TRUE(
              std::ranges::equal(stacks.frames, maker.Stack(1, step, 3)));
          ASSERT_TRUE(
              std::ranges::equal(stacks.next_frames, maker.Stack(1, next, 3)));
        }
      }
    }
  }
}

TEST(BatchReaderTest, AServiceThatSharesNoMemorySendsItsBatches) {
  const EpisodeMaker maker = MakePixels();
  RunningService shares(ConfigOf(maker)),
      sends(ConfigOf(maker), replicant::testing::OwnAddress(),
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

// A batch whose reply is lost begins anew: the lost reply may still be written.
TEST(BatchReaderTest, ALostReplyLeavesItsMemoryToTheService) {
  const EpisodeMaker maker = MakePixels();
  auto service = std::make_unique<RunningService>(ConfigOf(maker));
  const std::string endpoint = service->endpoint();
  BatchReader reader({.endpoints = {endpoint},
                      .shape = maker.shape,
                      .batch_size = 4,
                      .prefetch = 1,
                      .wait = seconds(20)});
  // a request waits for the first item while its service goes
  const auto give_up = After(seconds(60));
  while (service->counts().shared_memory_bytes == 0 &&
         Clock::Real().Now() < give_up) {
    std::this_thread::yield();
  }
  service.reset();
  service = std::make_unique<RunningService>(ConfigOf(maker), endpoint);
  Insert(service->shard(), maker, 1, 2, 8);
  Batch batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  EXPECT_EQ(Load<uint64_t>(batch.observations, 0), 2u);
  EXPECT_GE(reader.metrics().lost_requests, 1);
}

TEST(BatchReaderTest, TheServiceLetsMemoryGoWithItsReader) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(ConfigOf(maker));
  Insert(service.shard(), maker, 1, 1, 8);
  {
    BatchReader reader({.endpoints = {service.endpoint()},
                        .shape = maker.shape,
                        .batch_size = 4});
    Batch batch;
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    EXPECT_GT(service.counts().shared_memory_bytes, 0);
  }
  const auto give_up = After(seconds(60));
  while (service.counts().shared_memory_bytes > 0 &&
         Clock::Real().Now() < give_up) {
    std::this_thread::yield();
  }
  EXPECT_EQ(service.counts().shared_memory_bytes, 0);
}

TEST(BatchReaderTest, PrioritiesComeBackAndChangeTheDraws) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(ConfigOf(maker));
  Insert(service.shard(), maker, 1, 1, 4);
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 16,
                      .prefetch = 1,
                      .importance = {.exponent = 1.0}});
  Batch batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  // 3 for step 2, 1 for the others
  std::vector<float> priorities;
  for (int64_t i = 0; i < batch.size; ++i) {
    priorities.push_back(
        Load<int64_t>(batch.observations, 2 * i + 1) == 2 ? 3.0f : 1.0f);
  }
  reader.UpdatePriorities(batch, priorities);
  const auto give_up = After(seconds(60));
  while (service.shard().Status().tables[0].mass != 6.0 &&
         Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  // drawn before the update, and after
  for (int b = 0; b < 3; ++b) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  for (int64_t i = 0; i < batch.size; ++i) {
    const auto r = static_cast<size_t>(i);
    const bool is_two = Load<int64_t>(batch.observations, 2 * i + 1) == 2;
    EXPECT_DOUBLE_EQ(batch.probabilities[r], is_two ? 0.5 : 1.0 / 6);
    EXPECT_FLOAT_EQ(batch.weights[r], is_two ? 1.0f / 3 : 1.0f);
  }
  EXPECT_EQ(reader.metrics().dropped_updates, 0);
}

// (P_min / P)^exponent, with the exponent of the steps that were inserted.
TEST(BatchReaderTest, TheImportanceExponentFollowsTheInsertedSteps) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(ConfigOf(maker));
  Insert(service.shard(), maker, 1, 1, 4);
  const std::vector<PriorityUpdate> priorities = {
      {{0, 0}, 1.0f}, {{1, 0}, 2.0f}, {{2, 0}, 4.0f}, {{3, 0}, 5.0f}};
  ASSERT_EQ(service.shard().UpdatePriorities(0, priorities), 4);
  const ImportanceSchedule schedule{
      .exponent = 0.2, .final_exponent = 1.0, .steps = 20};
  const auto check_weights = [&](const Batch& batch) {
    const double exponent = schedule.At(batch.total_steps);
    const double least = *std::ranges::min_element(batch.probabilities);
    for (size_t i = 0; i < batch.weights.size(); ++i) {
      EXPECT_FLOAT_EQ(batch.weights[i],
                      static_cast<float>(
                          std::pow(least / batch.probabilities[i], exponent)));
    }
  };
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .batch_size = 64,
                      .prefetch = 1,
                      .importance = schedule});
  Batch batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  EXPECT_EQ(batch.total_steps, 4);
  check_weights(batch);
  // the heaviest item has a priority of 5, the lightest of 1
  EXPECT_FLOAT_EQ(*std::ranges::min_element(batch.weights),
                  static_cast<float>(std::pow(0.2, 0.2 + 0.8 * 4 / 20)));
  Insert(service.shard(), maker, 1, 2, 20);
  while (batch.total_steps < 24) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    check_weights(batch);
  }
  EXPECT_EQ(schedule.At(batch.total_steps), 1.0);
}

// Two services of 4 and 12 items: while all priorities are zero, each item is
// drawn with probability 1/16; once one service has a weight, it has all draws.
TEST(BatchReaderTest, ServicesWhosePrioritiesAreAllZeroDrawUniformly) {
  const EpisodeMaker maker = MakePixels();
  std::vector<std::unique_ptr<RunningService>> services;
  BatchReaderOptions options{.shape = maker.shape, .batch_size = 64};
  for (const int64_t count : {4, 12}) {
    services.push_back(std::make_unique<RunningService>(ConfigOf(maker)));
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
TEST(BatchReaderTest, ThreeShardsDrawAndWeighLikeOne) {
  const EpisodeMaker maker = MakePixels();
  std::vector<std::unique_ptr<RunningService>> services;
  BatchReaderOptions options{
      .shape = maker.shape, .batch_size = 64, .importance = {.exponent = 0.5}};
  double total = 0.0;
  std::map<uint64_t, std::map<int64_t, double>> priority;
  for (const int64_t count : {10, 20, 70}) {
    services.push_back(std::make_unique<RunningService>(ConfigOf(maker)));
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
  ShardConfig config = ConfigOf(maker);
  config.tables[0].rate_limiter.min_size_to_sample = min_size;
  return config;
}

// The minimum of two tables applies to their sum. Would catch draws from the
// table that is the first to be full.
TEST(BatchReaderTest, TablesReachTheirMinimumTogether) {
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
TEST(BatchReaderTest, ATableThatHoldsItsWritersUpIsDrawnFrom) {
  const EpisodeMaker maker = MakePixels();
  ShardConfig config = ConfigOf(maker);
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

TEST(BatchReaderTest, ANewServiceIsReadAfterARestart) {
  const EpisodeMaker maker = MakePixels();
  auto service = std::make_unique<RunningService>(ConfigOf(maker));
  const std::string endpoint = service->endpoint();
  Insert(service->shard(), maker, 1, 1, 8);
  BatchReader reader({.endpoints = {endpoint},
                      .shape = maker.shape,
                      .batch_size = 4,
                      .prefetch = 1});
  Batch batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  service.reset();
  service = std::make_unique<RunningService>(ConfigOf(maker), endpoint);
  Insert(service->shard(), maker, 1, 2, 8);
  uint64_t episode = 1;
  while (episode == 1) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    episode = Load<uint64_t>(batch.observations, 0);
  }
  EXPECT_EQ(episode, 2u);
}

// Without this, an update would change whatever item has the same key there.
TEST(BatchReaderTest, ABatchOfAnotherReaderTakesNoPriorities) {
  const EpisodeMaker maker = MakePixels();
  ShardConfig config = ConfigOf(maker);
  config.tables.push_back(config.tables[0]);
  config.tables[1].name = "others";
  RunningService service(config), second(config);
  for (RunningService* one : {&service, &second}) {
    Insert(one->shard(), maker, 1, 1, 8);
  }
  BatchReader both({.endpoints = {service.endpoint(), second.endpoint()},
                    .shape = maker.shape,
                    .batch_size = 16});
  BatchReader reader({.endpoints = {service.endpoint()},
                      .name = "learner",
                      .shape = maker.shape,
                      .table = "others"});
  Batch batch;
  ASSERT_EQ(both.Next(After(seconds(60)), &batch), ReadResult::kOk);
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>([&] {
              reader.UpdatePriorities(batch, std::vector<float>(16, 2.0f));
            }),
            "BatchReader: 'learner' reads table 'others' and did not draw this "
            "batch of table 'default'; hint: give the priorities to the reader "
            "that drew it");
  both.UpdatePriorities(batch, std::vector<float>(16, 2.0f));
}

// A service without a checkpoint gives the keys of the one before it again.
TEST(BatchReaderTest, PrioritiesOfAServiceBeforeARestartAreDropped) {
  const EpisodeMaker maker = MakePixels();
  std::optional<RunningService> service(std::in_place, ConfigOf(maker));
  const std::string endpoint = service->endpoint();
  Insert(service->shard(), maker, 1, 1, 8);
  BatchReader reader({.endpoints = {endpoint},
                      .shape = maker.shape,
                      .batch_size = 8,
                      .prefetch = 1});
  Batch old, batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &old), ReadResult::kOk);
  service.reset();
  service.emplace(ConfigOf(maker), endpoint);
  Insert(service->shard(), maker, 1, 2, 8);
  // batches of the first service may still be on the way
  do {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  } while (Load<uint64_t>(batch.observations, 0) == 1);
  reader.UpdatePriorities(old, std::vector<float>(8, 77.0f));
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  reader.UpdatePriorities(batch, std::vector<float>(8, 2.0f));
  const auto give_up = After(seconds(60));
  while (reader.metrics().sent_updates < 8 && Clock::Real().Now() < give_up) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  EXPECT_EQ(reader.metrics().dropped_updates, 8);
  while (service->shard().Status().tables[0].updates == 0 &&
         Clock::Real().Now() < give_up) {
    std::this_thread::yield();
  }
  EXPECT_EQ(service->shard().Status().tables[0].mass, 8 * 2.0);
}

// A learner's count of steps does not fall when a service loses some of them.
TEST(BatchReaderTest, StepsThatAServiceLostStayCounted) {
  const EpisodeMaker maker = MakePixels();
  std::optional<RunningService> service(std::in_place, ConfigOf(maker));
  const std::string endpoint = service->endpoint();
  Insert(service->shard(), maker, 1, 1, 10);
  BatchReader reader(
      {.endpoints = {endpoint}, .shape = maker.shape, .batch_size = 8});
  Batch batch;
  ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  EXPECT_EQ(batch.total_steps, 10);
  service.reset();
  service.emplace(ConfigOf(maker), endpoint);
  Insert(service->shard(), maker, 1, 2, 4);
  // batches of the first service may still be on the way
  uint64_t episode = 1;
  while (episode == 1) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
    EXPECT_EQ(batch.total_steps, 10);
    episode = Load<uint64_t>(batch.observations, 0);
  }
  Insert(service->shard(), maker, 1, 3, 6);
  while (batch.total_steps < 16) {
    ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
  }
  EXPECT_EQ(batch.total_steps, 16);
}

TEST(BatchReaderTest, WaitsAreEndedByDeadlineAndByClose) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(ConfigOf(maker));
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .wait = milliseconds(5)});
  Batch batch;
  EXPECT_EQ(reader.Next(After(milliseconds(20)), &batch), ReadResult::kTimeout);
  ReadResult result = ReadResult::kOk;
  Thread waiter("waiter", [&](const Thread::StopToken&) {
    result = reader.Next(After(seconds(60)), &batch);
  });
  reader.Close();
  waiter.Join();
  EXPECT_EQ(result, ReadResult::kClosed);
}

TEST(BatchReaderTest, SaysWhatItCannotHave) {
  const EpisodeMaker maker = MakePixels();
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>(
                [&] { BatchReader reader(BatchReaderOptions{}); }),
            "BatchReader: number of endpoints 0 is outside [1, 1024]");
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>([] {
              BatchReader reader({.endpoints = {"ipc://none"},
                                  .importance = {.final_exponent = 1.5}});
            }),
            "BatchReader: importance exponent 1.5 is outside [0, 1]");
  RunningService service(ConfigOf(maker));
  BatchReader reader({.endpoints = {service.endpoint()},
                      .shape = maker.shape,
                      .table = "others"});
  Batch batch;
  EXPECT_EQ(replicant::testing::MessageOf<CommError>([&] {
              static_cast<void>(reader.Next(After(seconds(60)), &batch));
            }),
            service.endpoint() +
                ": replay.sample: no table 'others'; allowed: default");
  batch.size = 1;
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>(
                [&] { reader.UpdatePriorities(batch, {}); }),
            "BatchReader: 0 priorities for a batch of 1");
}

}  // namespace
}  // namespace replicant::replay
