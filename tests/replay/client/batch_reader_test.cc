#include "replay/client/batch_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "tests/replay/client/batch_rows.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using std::chrono::milliseconds;
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

TEST(BatchReaderTest, BatchesHoldTheStepsAndStacksThatWereInserted) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(StackedTable(maker));
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

// Batches beyond the limit are not drawn.
TEST(BatchReaderTest, DrawsNoMoreThanItsLimit) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(StackedTable(maker));
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

// Two services that draw the same, one read through memory and one over tcp.
TEST(BatchReaderTest, SharedMemoryAndMessagesGiveTheSameBatches) {
  for (const FrameCodec codec :
       {FrameCodec::kNone, FrameCodec::kLz4, FrameCodec::kZstd}) {
    SCOPED_TRACE(ToString(codec));
    const EpisodeMaker maker = MakePixels(codec);
    RunningService service(StackedTable(maker)), twin(StackedTable(maker));
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

// Without decode threads, whoever has a batch decodes its rows.
TEST(BatchReaderTest, CompressedBatchesAreDecodedRowByRow) {
  for (const bool shares_memory : {true, false}) {
    for (const FrameCodec codec : {FrameCodec::kNone, FrameCodec::kLz4}) {
      const EpisodeMaker maker = MakePixels(codec);
      RunningService service(StackedTable(maker));
      Insert(service.shard(), maker, 1, 1, 10);
      BatchReader reader({.endpoints = {service.endpoint()},
                          .shape = maker.shape,
                          .batch_size = 32,
                          .decode_threads = 0,
                          .shares_memory = shares_memory});
      Batch batch;
      FrameRoom room;
      for (int b = 0; b < 10; ++b) {
        ASSERT_EQ(reader.Next(After(seconds(60)), &batch), ReadResult::kOk);
        const bool is_direct = codec == FrameCodec::kNone && shares_memory;
        ASSERT_EQ(batch.compressed.empty(), is_direct);
        for (int64_t i = 0; i < batch.size; ++i) {
          const auto step = Load<int64_t>(batch.observations, 2 * i + 1);
          const auto next = Load<int64_t>(batch.next_observations, 2 * i + 1);
          const ItemFrames stacks = batch.FramesOf(i, room);
          ASSERT_EQ(testing::Joined(stacks.frames, 300),
                    maker.Stack(1, step, 3));
          ASSERT_EQ(testing::Joined(stacks.next_frames, 300),
                    maker.Stack(1, next, 3));
        }
      }
    }
  }
}

TEST(BatchReaderTest, TheServiceLetsMemoryGoWithItsReader) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(StackedTable(maker));
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
  RunningService service(StackedTable(maker));
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
  RunningService service(StackedTable(maker));
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

// Without this, an update would change whatever item has the same key there.
TEST(BatchReaderTest, ABatchOfAnotherReaderTakesNoPriorities) {
  const EpisodeMaker maker = MakePixels();
  ShardConfig config = StackedTable(maker);
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

TEST(BatchReaderTest, WaitsAreEndedByDeadlineAndByClose) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(StackedTable(maker));
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
  RunningService service(StackedTable(maker));
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
