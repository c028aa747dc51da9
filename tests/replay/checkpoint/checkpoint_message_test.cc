// A checkpoint that is asked for by message: what it holds, and how it is
// restored.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/client.h"
#include "replay/client/batch_reader.h"
#include "tests/replay/checkpoint/file_size_limit.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using std::chrono::seconds;
using testing::EpisodeMaker;
using testing::RunningService;

constexpr rpc::CallOptions kOnce = {.timeout = seconds(60)};

ShardConfig Config(uint64_t seed = 3) {
  ShardConfig config;
  config.shape = EpisodeMaker().shape;
  config.seed = seed;
  config.tables = {{.name = "t",
                    .max_size = 100,
                    .n_step = {.n_step = 2},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  return config;
}

Clock::TimePoint Soon() { return Clock::Real().Now() + seconds(60); }

std::unique_ptr<RunningService> Serve(const std::filesystem::path& folder,
                                      uint64_t restore_id = 0) {
  return std::make_unique<RunningService>(
      Config(), replicant::testing::OwnAddress(), RunningService::FastTicks(),
      ServiceOptions{},
      CheckpointOptions{.folder = folder, .restore_id = restore_id});
}

// Draws of both shards, until they are known to be in one state.
void ExpectSameDraws(Shard& shard, Shard& expected) {
  SampledBatch batch, wanted;
  ASSERT_EQ(shard.TrySample(0, 300, "test", &batch), 300);
  ASSERT_EQ(expected.TrySample(0, 300, "test", &wanted), 300);
  for (size_t i = 0; i < 300; ++i) {
    ASSERT_EQ(batch.items[i].key, wanted.items[i].key);
    ASSERT_EQ(batch.items[i].probability, wanted.items[i].probability);
    ASSERT_EQ(batch.items[i].priority, wanted.items[i].priority);
    ASSERT_EQ(batch.items[i].times_sampled, wanted.items[i].times_sampled);
  }
}

TEST(ReplayCheckpointMessageTest, HoldsWhatWasSentBeforeItAndNothingAfter) {
  const TemporaryFolder folder;
  const EpisodeMaker maker;
  Shard expected(Config(), &Clock::Real());
  {
    const auto service = Serve(folder.path());
    rpc::ZmqContext context;
    rpc::Client client(context, ReplayProtocol(), {.name = "learner"});
    client.Connect(service->endpoint());
    std::vector<rpc::Client::RequestId> requests;
    const auto send = [&](uint16_t kind, rpc::Message message) {
      requests.push_back(*client.Start(kind, std::move(message), kOnce));
    };
    // nothing is waited for: the place in the queue alone decides
    for (uint64_t k = 1; k <= 6; ++k) {
      const auto chunks = maker.Chunks(k, 7, /*is_open=*/k == 3);
      InsertRequest insert{.writer = 5, .first_sequence = 2 * k - 1};
      for (const auto& chunk : chunks) insert.blocks.push_back(chunk);
      send(kInsertKind, insert.Encode());
      const PriorityUpdate update = {{static_cast<uint32_t>(k), 0},
                                     0.25f * static_cast<float>(k)};
      EXPECT_EQ(
          client.SendOneWay(kUpdateKind, UpdateRequest{"t", {update}}.Encode(),
                            seconds(5)),
          rpc::SendResult::kOk);
      send(kSampleKind, rpc::EncodeMessage(SampleRequest{"t", 9, 1000}));
      if (k == 3)
        send(kCheckpointKind, rpc::EncodeMessage(CheckpointRequest{30}));
      if (k > 3) continue;
      for (size_t i = 0; i < chunks.size(); ++i) {
        ASSERT_EQ(expected.TryInsert(5, 2 * k - 1 + i, chunks[i]),
                  InsertResult::kInserted);
      }
      expected.UpdatePriorities(0, {&update, 1});
      SampledBatch batch;
      ASSERT_EQ(expected.TrySample(0, 9, "test", &batch), 9);
    }
    for (const auto request : requests) {
      const rpc::CallReply reply = client.Wait(request);
      ASSERT_EQ(reply.result, rpc::CallResult::kOk) << reply.error_text;
    }
    // the answer has said that it is on the disk
    EXPECT_EQ(ReadCheckpointFile(folder.path(), 1).head.id, 30u);
    // and one that is newer
    EXPECT_EQ(service->checkpointer().Save(), 2u);
  }
  const auto restored = Serve(folder.path(), /*restore_id=*/30);
  EXPECT_EQ(restored->checkpointer().restored().number, 1u);
  EXPECT_EQ(restored->shard().LastSequence(5), 6u);
  ExpectSameDraws(restored->shard(), expected);
}

TEST(ReplayCheckpointMessageTest, SaysWhyItCannotBeWritten) {
  const EpisodeMaker maker;
  const auto error_of = [](RunningService& service, uint64_t id) {
    rpc::ZmqContext context;
    rpc::Client client(context, ReplayProtocol());
    client.Connect(service.endpoint());
    return client
        .Call(kCheckpointKind, rpc::EncodeMessage(CheckpointRequest{id}), kOnce)
        .error_text;
  };
  RunningService without(Config());
  EXPECT_EQ(
      error_of(without, 1),
      "replay.checkpoint: this service keeps no checkpoints; hint: give it a "
      "checkpoint_folder");
  EXPECT_EQ(error_of(without, 0),
            "replay.checkpoint: field 'id': 0 is outside [1, "
            "9223372036854775807]");
  const TemporaryFolder folder;
  const auto service = Serve(folder.path());
  std::string error;
  {
    const testing::FileSizeLimit full_disk(10);
    error = error_of(*service, 1);
  }
  EXPECT_NE(error.find(folder.path().string()), std::string::npos) << error;
  EXPECT_NE(error.find("File too large"), std::string::npos) << error;
}

// The whole cut of a learner over two services: what it has seen is what counts
// as sampled, and its priorities are in.
TEST(ReplayCheckpointMessageTest, AReaderCutsAllItsServicesAtOneStep) {
  const EpisodeMaker maker;
  const TemporaryFolder folders[2];
  int64_t num_given = 0;
  // by service and slot; an item that was never drawn has its first one, 1
  std::map<std::pair<int32_t, uint32_t>, float> wanted;
  {
    const std::unique_ptr<RunningService> services[] = {
        Serve(folders[0].path()), Serve(folders[1].path())};
    for (const auto& service : services) {
      ASSERT_EQ(service->shard().TryInsert(1, 1, maker.Chunks(1, 4)[0]),
                InsertResult::kInserted);
    }
    BatchReader reader(
        {.endpoints = {services[0]->endpoint(), services[1]->endpoint()},
         .shape = maker.shape,
         .table = "t",
         .batch_size = 8,
         .prefetch = 3});
    Batch batch;
    // every batch that is under way is given, and trained on
    ASSERT_EQ(reader.Next(Soon(), &batch), ReadResult::kOk);
    reader.SetPaused(true);
    ReadResult result = ReadResult::kOk;
    float priority = 1.0f;
    do {
      num_given += batch.size;
      reader.UpdatePriorities(
          batch, std::vector<float>(static_cast<size_t>(batch.size),
                                    priority += 1.0f));
      for (size_t i = 0; i < batch.keys.size(); ++i) {
        wanted[{batch.shards[i], batch.keys[i].slot}] = priority;
      }
      result = reader.Next(Soon(), &batch);
    } while (result == ReadResult::kOk);
    ASSERT_EQ(result, ReadResult::kPaused);
    // it goes before the batches that are asked for from now on
    reader.StartCheckpoint(12, Soon());
    reader.SetPaused(false);
    CheckpointState state = CheckpointState::kPending;
    while (state == CheckpointState::kPending) state = reader.PollCheckpoint();
    ASSERT_EQ(state, CheckpointState::kSaved);
    // later priorities are in the running services only
    reader.UpdatePriorities(batch, std::vector<float>(8, 99.0f));
    ASSERT_EQ(reader.Next(Soon(), &batch), ReadResult::kOk);
  }
  int64_t num_sampled = 0;
  for (int32_t shard = 0; shard < 2; ++shard) {
    const auto service = Serve(folders[shard].path(), /*restore_id=*/12);
    num_sampled += service->shard().Status().tables[0].samples;
    SampledBatch batch;
    ASSERT_EQ(service->shard().TrySample(0, 20, "test", &batch), 20);
    for (const SampledItem& item : batch.items) {
      const auto found = wanted.find({shard, item.key.slot});
      EXPECT_EQ(item.priority, found == wanted.end() ? 1.0f : found->second);
    }
  }
  EXPECT_EQ(num_sampled, num_given);
}  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)

TEST(ReplayCheckpointMessageTest, ALateAnswerIsNotOfTheNextCheckpoint) {
  const EpisodeMaker maker;
  for (int round = 0; round < 20; ++round) {
    const TemporaryFolder folder;
    {
      const auto service = Serve(folder.path());
      BatchReader reader({.endpoints = {service->endpoint()},
                          .shape = maker.shape,
                          .table = "t"});
      // given up
      reader.StartCheckpoint(1, Soon());
      ASSERT_EQ(reader.Checkpoint(2, Soon()), CheckpointState::kSaved);
    }
    EXPECT_NO_THROW(Serve(folder.path(), /*restore_id=*/2)) << round;
  }
}

TEST(ReplayCheckpointMessageTest, AReaderIsToldWhyThereIsNoCheckpoint) {
  const EpisodeMaker maker;
  const auto reader_of = [&](const RunningService& service) {
    return std::make_unique<BatchReader>(BatchReaderOptions{
        .endpoints = {service.endpoint()}, .shape = maker.shape, .table = "t"});
  };
  RunningService without(Config());
  EXPECT_EQ(reader_of(without)->Checkpoint(7, Soon()),
            CheckpointState::kNotKept);
  const TemporaryFolder folder;
  const auto service = Serve(folder.path());
  const auto owned = reader_of(*service);
  BatchReader& reader = *owned;
  {
    const testing::FileSizeLimit full_disk(10);
    const std::string message = replicant::testing::MessageOf<CommError>(
        [&] { (void)reader.Checkpoint(7, Soon()); });
    EXPECT_EQ(message.find(service->endpoint() + ": checkpoint 7: "), 0u)
        << message;
    EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  }
  // and tries again
  EXPECT_EQ(reader.Checkpoint(7, Soon()), CheckpointState::kSaved);
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>(
                [&] { (void)reader.Checkpoint(0, Soon()); }),
            "BatchReader: a checkpoint needs an id");
  // nobody listens there
  BatchReader lost(BatchReaderOptions{
      .endpoints = {"tcp://127.0.0.1:1"}, .shape = maker.shape, .table = "t"});
  EXPECT_EQ(replicant::testing::MessageOf<CommError>(
                [&] { (void)lost.Checkpoint(8, Clock::Real().Now()); }),
            "the replay has not saved its checkpoint in time");
}

}  // namespace
}  // namespace replicant::replay
