#include "replay/service/service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/fs.h"
#include "base/rpc/client.h"
#include "replay/format/batch_codec.h"
#include "replay/format/batch_message.h"
#include "replay/service/service_status.h"
#include "replay/service/service_watch.h"
#include "tests/replay/episodes.h"
#include "tests/replay/running_service.h"

namespace replicant::replay {
namespace {

using replicant::testing::OwnAddress;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::EpisodeMaker;
using ::testing::HasSubstr;
using testing::RunningService;

// Sent once, however slow this machine is.
constexpr rpc::CallOptions kIdempotent = {.timeout = seconds(60),
                                          .is_idempotent = true,
                                          .attempt_timeout = seconds(60)};
// From the first item on, without a ratio.
constexpr RateLimiterConfig kFromOne = {.mode = RateLimiterMode::kMinSize,
                                        .min_size_to_sample = 1};
// Two items, then one insert per sample, with room for four.
constexpr RateLimiterConfig kTight = {
    .samples_per_insert = 1.0, .min_size_to_sample = 2, .error_buffer = 4.0};

ShardConfig ConfigOf(const EpisodeMaker& maker,
                     const RateLimiterConfig& limiter) {
  ShardConfig config;
  config.shape = maker.shape;
  config.tables = {{.name = "t", .max_size = 1000, .rate_limiter = limiter}};
  return config;
}

// A client with the calls of the protocol.
class Caller {
 public:
  explicit Caller(const std::string& endpoint, const char* name = "caller",
                  const rpc::SocketOptions& socket = {})
      : client_(context_, ReplayProtocol(), {.socket = socket, .name = name}) {
    client_.Connect(endpoint);
  }

  InsertAck Insert(InsertRequest request,
                   const std::vector<std::vector<std::byte>>& chunks) {
    for (const auto& chunk : chunks) request.blocks.push_back(chunk);
    const rpc::CallReply reply =
        client_.Call(kInsertKind, request.Encode(), kIdempotent);
    EXPECT_EQ(reply.result, rpc::CallResult::kOk) << reply.error_text;
    return rpc::DecodeMessage<InsertAck>(reply.payload);
  }
  uint64_t StartSample(uint32_t count, uint32_t wait_ms) {
    return *client_.Start(
        kSampleKind, rpc::EncodeMessage(SampleRequest{"t", count, wait_ms}),
        {.timeout = seconds(60)});
  }
  BatchMessage WaitForBatch(uint64_t id, const StepShape& shape) {
    rpc::CallReply reply = client_.Wait(id);
    EXPECT_EQ(reply.result, rpc::CallResult::kOk) << reply.error_text;
    return {std::move(reply.payload), shape};
  }
  nlohmann::json Status() {
    const rpc::CallReply reply = client_.Call(kStatusKind, {}, kIdempotent);
    return nlohmann::json::parse(
        rpc::DecodeMessage<StatusReply>(reply.payload).json);
  }
  std::string ErrorOf(uint16_t kind, rpc::Message payload) {
    const rpc::CallReply reply =
        client_.Call(kind, std::move(payload), kIdempotent);
    return reply.result == rpc::CallResult::kError ? reply.error_text : "none";
  }
  rpc::Client& client() { return client_; }

 private:
  rpc::ZmqContext context_;
  rpc::Client client_;
};

TEST(ReplayServiceTest, SaysWhatItHolds) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  const rpc::CallReply reply =
      caller.client().Call(kDescribeKind, {}, kIdempotent);
  EXPECT_EQ(rpc::DecodeMessage<ServiceInfo>(reply.payload),
            (ServiceInfo{maker.shape, 64, {{"t", 1, 1, 0.99}}}));
}

TEST(ReplayServiceTest, TakesEachChunkOnceAndInOrder) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  const auto chunks = maker.Chunks(1, 12);  // three
  const auto early =
      caller.Insert({.writer = 5, .first_sequence = 2}, {chunks[1]});
  EXPECT_EQ(early, (InsertAck{InsertState::kOutOfOrder, 0, 64, {}}));
  EXPECT_EQ(caller.Insert({.writer = 5}, {chunks[0], chunks[1]}),
            (InsertAck{InsertState::kTaken, 2, 64, {}}));
  // sent again together with what follows
  EXPECT_EQ(caller.Insert({.writer = 5}, chunks),
            (InsertAck{InsertState::kTaken, 3, 64, {}}));
  EXPECT_EQ(service.shard().Status().inserted_steps, 12);
  EXPECT_EQ(caller.Status()["counts"]["duplicate_groups"], 2);
  EXPECT_EQ(caller.Status()["counts"]["out_of_order"], 1);
}

// A service that lost its memory learns from base_sequence what comes next, and
// tells the writer which episode it cannot continue.
TEST(ReplayServiceTest, TakesUpAWriterThatItDoesNotKnow) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  auto chunks = maker.Chunks(1, 8);
  chunks.push_back(maker.Chunks(2, 4)[0]);
  chunks.erase(chunks.begin());
  EXPECT_EQ(caller.Insert(
                {.writer = 5, .base_sequence = 8, .first_sequence = 8}, chunks),
            (InsertAck{InsertState::kTaken, 9, 64, {8}}));
  EXPECT_EQ(service.shard().Status().inserted_steps, 4);
}

TEST(ReplayServiceTest,
     AWaitingReaderGetsTheBatchWithTheInsertThatCompletesIt) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller reader(service.endpoint(), "learner");
  Caller writer(service.endpoint());
  const uint64_t id = reader.StartSample(3, 20'000);
  // the request is there once it stands in the status
  while (writer.Status()["tables"][0]["sample_wait"].is_null()) {
    reader.client().Process(milliseconds(1));
  }
  const auto wait = writer.Status()["tables"][0]["sample_wait"];
  EXPECT_EQ(wait["who"], "learner");
  EXPECT_EQ(wait["why"], "the table holds 0 items; min_size_to_sample is 1");
  writer.Insert({.writer = 5}, maker.Chunks(7, 4));
  const BatchMessage batch = reader.WaitForBatch(id, maker.shape);
  EXPECT_EQ(batch.state(), BatchState::kFull);
  ASSERT_EQ(batch.size(), 3);
  for (int64_t i = 0; i < 3; ++i) {
    const SampledItem& item = batch.items()[static_cast<size_t>(i)];
    EXPECT_TRUE(std::ranges::equal(batch.Observation(i),
                                   maker.Observation(7, item.step)));
    EXPECT_TRUE(std::ranges::equal(batch.NextObservation(i),
                                   maker.Observation(7, item.step + 1)));
    EXPECT_EQ(item.reward, EpisodeMaker::Reward(item.step));
  }
  EXPECT_TRUE(writer.Status()["tables"][0]["sample_wait"].is_null());
}

TEST(ReplayServiceTest, AReaderGetsWhatThereIsByItsDeadline) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kTight));
  Caller caller(service.endpoint());
  caller.Insert({.writer = 5}, maker.Chunks(1, 2));
  for (const uint32_t wait_ms : {0u, 10u}) {
    const BatchMessage batch =
        caller.WaitForBatch(caller.StartSample(9, wait_ms), maker.shape);
    EXPECT_EQ(batch.state(), BatchState::kTimeout);
    EXPECT_EQ(batch.size(), wait_ms == 0 ? 4 : 0);
  }
}

// 6 items fill the buffer of kTight; a chunk brings 4.
TEST(ReplayServiceTest, AWriterHasNoCreditsUntilSamplesMakeRoom) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kTight), OwnAddress(),
                         RunningService::FastTicks(), {.credits = 2});
  Caller writer(service.endpoint());
  const auto chunks = maker.Chunks(1, 20);  // five
  EXPECT_EQ(writer.Insert({.writer = 5}, {chunks[0], chunks[1]}),
            (InsertAck{InsertState::kWaiting, 2, 1, {}}));
  EXPECT_EQ(
      writer.Insert({.writer = 5, .first_sequence = 3}, {chunks[2], chunks[3]}),
      (InsertAck{InsertState::kNoCredits, 3, 0, {}}));
  EXPECT_EQ(
      writer.Insert({.writer = 5, .first_sequence = 4, .wait_ms = 10}, {}),
      (InsertAck{InsertState::kWaiting, 3, 0, {}}));

  // asks for the answer, which comes with the samples
  const auto ask = *writer.client().Start(
      kInsertKind,
      InsertRequest{.writer = 5, .first_sequence = 4, .wait_ms = 20'000}
          .Encode(),
      kIdempotent);
  Caller reader(service.endpoint());
  EXPECT_EQ(
      reader.WaitForBatch(reader.StartSample(8, 20'000), maker.shape).size(),
      8);
  const rpc::CallReply reply = writer.client().Wait(ask);
  EXPECT_EQ(rpc::DecodeMessage<InsertAck>(reply.payload),
            (InsertAck{InsertState::kTaken, 3, 2, {}}));
}

TEST(ReplayServiceTest, UpdatesReachLivingItemsOnly) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  caller.Insert({.writer = 5}, maker.Chunks(1, 3));
  const rpc::CallReply reply = caller.client().Call(
      kUpdateKind,
      UpdateRequest{"t", {{{0, 0}, 0.0f}, {{1, 0}, 0.0f}, {{2, 9}, 0.0f}}}
          .Encode());
  EXPECT_EQ(rpc::DecodeMessage<UpdateReply>(reply.payload).num_updated, 2u);
  const BatchMessage batch =
      caller.WaitForBatch(caller.StartSample(4, 1000), maker.shape);
  for (const SampledItem& item : batch.items()) EXPECT_EQ(item.key.slot, 2u);
  EXPECT_EQ(caller.ErrorOf(kUpdateKind,
                           UpdateRequest{"t", {{{0, 0}, -1.0f}}}.Encode()),
            "table 't': priority -1 must be finite and >= 0");
  EXPECT_EQ(caller.ErrorOf(kUpdateKind, UpdateRequest{"u", {}}.Encode()),
            "replay.update: no table 'u'; allowed: t");
}

TEST(ReplayServiceTest, AWriterThatIsSilentLosesItsOpenEpisode) {
  const EpisodeMaker maker;
  rpc::ServerOptions options = RunningService::FastTicks();
  options.peer_timeout = milliseconds(200);
  RunningService service(ConfigOf(maker, kFromOne), OwnAddress(), options);
  Caller watcher(service.endpoint());
  Caller writer(service.endpoint());
  const auto chunks = maker.Chunks(1, 8);
  writer.Insert({.writer = 5}, {chunks[0]});
  // the writer's client is not called any more, and so says nothing
  const auto give_up = Clock::Real().Now() + seconds(60);
  while (watcher.Status()["counts"]["expired_writers"] == 0 &&
         Clock::Real().Now() < give_up) {
  }
  EXPECT_EQ(watcher.Status()["counts"]["abandoned_steps"], 1);
  EXPECT_EQ(watcher.Status()["writers"], 0);
  // it comes back with the rest, and then with another episode
  EXPECT_EQ(writer.Insert({.writer = 5, .first_sequence = 2},
                          {chunks[1], maker.Chunks(2, 4)[0]}),
            (InsertAck{InsertState::kTaken, 3, 64, {2}}));
}

// The answer that said so first may be lost.
TEST(ReplayServiceTest, DroppedChunksAreNamedAgainWhenTheyComeAgain) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  // the second chunk of an episode that the service does not know
  const std::vector chunks = {maker.Chunks(1, 8)[1], maker.Chunks(2, 4)[0]};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(caller.Insert({.writer = 5}, chunks),
              (InsertAck{InsertState::kTaken, 2, 64, {1}}));
  }
  // until the writer has moved on
  EXPECT_EQ(
      caller.Insert({.writer = 5, .base_sequence = 3, .first_sequence = 3},
                    {maker.Chunks(3, 4)[0]}),
      (InsertAck{InsertState::kTaken, 3, 64, {}}));
}

// A restarted service knows fewer steps than the writer had acknowledged.
TEST(ReplayServiceTest, CountsTheStepsThatACrashHasCostOnce) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  const auto chunks = maker.Chunks(2, 8);
  for (uint64_t i = 0; i < 2; ++i) {
    caller.Insert({.writer = 5,
                   .base_sequence = 9 + i,
                   .base_steps = 30 + 4 * i,
                   .first_sequence = 9 + i},
                  {chunks[i]});
  }
  EXPECT_EQ(caller.Status()["counts"]["lost_steps"], 30);
  EXPECT_EQ(caller.Status()["counts"]["inserted_steps"], 8);
}

// The count of a writer is what it says, so nothing may depend on it.
TEST(ReplayServiceTest, LostStepsAreInNoOtherCount) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  for (const uint64_t writer : {5, 6}) {
    caller.Insert({.writer = writer, .base_steps = kMaxSteps},
                  maker.Chunks(writer, 8));
  }
  EXPECT_EQ(service.shard().Status().lost_steps, 2 * int64_t{kMaxSteps});
  const auto batch =
      caller.WaitForBatch(caller.StartSample(4, 10'000), maker.shape);
  EXPECT_EQ(batch.total_steps(), 16);
}

// Replies that its connection does not take would otherwise fill the service's
// memory.
TEST(ReplayServiceTest, AReaderThatDoesNotReadGetsNoFurtherBatches) {
  constexpr int kBatches = 100;
  constexpr uint32_t kItems = 128;
  EpisodeMaker maker;
  maker.shape.frame_bytes = 4096;
  maker.codec = FrameCodec::kNone;
  RunningService service(ConfigOf(maker, kFromOne), OwnAddress(),
                         RunningService::FastTicks(),
                         {.max_unread_bytes = int64_t{1} << 20});
  Caller caller(service.endpoint());
  caller.Insert({.writer = 5}, maker.Chunks(1, 100));
  // its thread for messages takes one, and the rest waits in the connection
  Caller reader(service.endpoint(), "reader", {.receive_queue_messages = 1});
  ASSERT_EQ(reader.client().AwaitSession(seconds(60)), rpc::CallResult::kOk);
  std::vector<uint64_t> requests;
  requests.reserve(kBatches);
  for (int i = 0; i < kBatches; ++i) {
    requests.push_back(reader.StartSample(kItems, 30'000));
  }
  const auto give_up = Clock::Real().Now() + seconds(60);
  while (service.counts().batches == 0 && Clock::Real().Now() < give_up) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  // 100 MB in all, of which the connection holds a few
  int64_t num_sent = -1;
  for (int64_t now = 0; now != num_sent;) {
    num_sent = now;
    std::this_thread::sleep_for(milliseconds(200));
    now = service.counts().batches;
  }
  EXPECT_GT(num_sent, 0);
  EXPECT_LT(num_sent, kBatches / 2);
  // others are served
  EXPECT_EQ(
      caller.WaitForBatch(caller.StartSample(4, 30'000), maker.shape).size(),
      4);
  for (const uint64_t request : requests) {
    EXPECT_EQ(reader.WaitForBatch(request, maker.shape).size(), kItems);
  }
}

// Whoever was killed together with the service holds no memory for ever.
TEST(ReplayServiceTest, ARestoredWriterThatStaysAwayLosesItsOpenEpisode) {
  const EpisodeMaker maker;
  const TemporaryFolder folder;
  const CheckpointOptions checkpoints = {.folder = folder.path()};
  {
    Shard shard(ConfigOf(maker, kFromOne), &Clock::Real());
    Checkpointer checkpointer(checkpoints, &shard);
    for (const uint64_t writer : {5, 6}) {
      ASSERT_EQ(shard.TryInsert(writer, 1, maker.Chunks(1, 8)[0]),
                InsertResult::kInserted);
    }
    checkpointer.Save();
  }
  FakeClock clock;
  rpc::ServerOptions options = RunningService::FastTicks();
  options.clock = &clock;
  RunningService service(ConfigOf(maker, kFromOne), OwnAddress(), options,
                         {.return_timeout = seconds(3)}, checkpoints);
  Caller caller(service.endpoint());
  EXPECT_EQ(service.shard().OpenWriters(), (std::vector<uint64_t>{5, 6}));
  caller.Insert({.writer = 6, .base_sequence = 2, .first_sequence = 2}, {});
  clock.Advance(seconds(3));
  const auto give_up = Clock::Real().Now() + seconds(60);
  while (caller.Status()["counts"]["expired_writers"] == 0 &&
         Clock::Real().Now() < give_up) {
  }
  EXPECT_EQ(service.shard().OpenWriters(), (std::vector<uint64_t>{6}));
  EXPECT_EQ(caller.Status()["counts"]["abandoned_steps"], 1);
  EXPECT_EQ(caller.Status()["counts"]["lost_steps"], 0);
  // the one that returned continues
  EXPECT_EQ(
      caller.Insert({.writer = 6, .base_sequence = 2, .first_sequence = 2},
                    {maker.Chunks(1, 8)[1]}),
      (InsertAck{InsertState::kTaken, 2, 64, {}}));
}

// Items that wait in a restored shard go in without another message of their
// writer.
TEST(ReplayServiceTest, WaitingItemsOfARestoredWriterGoInWithSamples) {
  const EpisodeMaker maker;
  const TemporaryFolder folder;
  const CheckpointOptions checkpoints = {.folder = folder.path()};
  {
    Shard shard(ConfigOf(maker, kTight), &Clock::Real());
    Checkpointer checkpointer(checkpoints, &shard);
    ASSERT_EQ(shard.TryInsert(5, 1, maker.Chunks(1, 8)[0]),
              InsertResult::kInserted);
    ASSERT_EQ(shard.TryInsert(5, 2, maker.Chunks(1, 8)[1]),
              InsertResult::kWait);
    checkpointer.Save();
  }
  RunningService service(ConfigOf(maker, kTight), OwnAddress(),
                         RunningService::FastTicks(), {}, checkpoints);
  Caller caller(service.endpoint());
  EXPECT_EQ(caller.Status()["tables"][0]["size"], 6);
  caller.WaitForBatch(caller.StartSample(4, 20'000), maker.shape);
  EXPECT_EQ(caller.Status()["tables"][0]["size"], 8);
}

TEST(ReplayServiceTest, AWriterThatClosesLosesItsOpenEpisodeAtOnce) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  caller.Insert({.writer = 5}, {maker.Chunks(1, 8)[0]});
  const rpc::CallReply reply = caller.client().Call(
      kCloseWriterKind, rpc::EncodeMessage(CloseWriterRequest{5}), kIdempotent);
  EXPECT_EQ(reply.result, rpc::CallResult::kOk);
  EXPECT_EQ(service.shard().Status().abandoned_steps, 1);
}

TEST(ReplayServiceTest, ABadChunkIsRefusedAndWhatCameBeforeItStays) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kFromOne));
  Caller caller(service.endpoint());
  auto chunks = maker.Chunks(1, 8);
  chunks[1][0] = std::byte{'X'};
  InsertRequest request{.writer = 5, .blocks = {chunks[0], chunks[1]}};
  EXPECT_EQ(caller.ErrorOf(kInsertKind, request.Encode()).substr(0, 41),
            "replay.insert: chunk 2 of writer 0x5: chu");
  EXPECT_EQ(service.server().metrics().malformed, 1u);
  EXPECT_EQ(service.shard().LastSequence(5), 1u);
}

TEST(ReplayServiceTest, SaysThatOpenEpisodesLeaveNoRoom) {
  const EpisodeMaker maker;
  ShardConfig config = ConfigOf(maker, kFromOne);
  config.max_bytes = 4000;
  RunningService service(config);
  Caller caller(service.endpoint());
  EXPECT_TRUE(caller.Status()["memory"]["wait"].is_null());
  uint64_t writer = 0;
  InsertState state = InsertState::kTaken;
  while (state == InsertState::kTaken) {
    ++writer;
    state = caller.Insert({.writer = writer}, {maker.Chunks(1, 8)[0]}).state;
  }
  EXPECT_EQ(state, InsertState::kNoRoom);
  nlohmann::json status = caller.Status();
  nlohmann::json wait = status["memory"]["wait"];
  EXPECT_EQ(wait["who"], fmt::format("writer {:#x}", writer));
  EXPECT_EQ(wait["why"],
            fmt::format("no room: open episodes and waiting items of {} "
                        "writers hold {} of max_bytes 4000; hint: raise "
                        "replay.max_bytes",
                        writer - 1, status["memory"]["bytes"].get<int64_t>()));
  EXPECT_THAT(StatusText(status.dump()),
              HasSubstr(fmt::format("  inserts wait, writer {:#x} first, for ",
                                    writer)));
  EXPECT_EQ(caller.ErrorOf(kCloseWriterKind,
                           rpc::EncodeMessage(CloseWriterRequest{1})),
            "none");
  EXPECT_EQ(caller.Insert({.writer = writer}, {maker.Chunks(1, 8)[0]}).state,
            InsertState::kTaken);
  EXPECT_TRUE(caller.Status()["memory"]["wait"].is_null());
}

TEST(ReplayServiceTest, TheStatusCanBeReadByPeople) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kTight));
  Caller caller(service.endpoint());
  caller.Insert({.writer = 5}, maker.Chunks(1, 8));
  const std::string text = StatusText(caller.Status().dump());
  EXPECT_NE(text.find("table 't': 6 of 1000 items, 6 inserts, 0 samples, error "
                      "4.0\n  inserts wait, writer 0x5 first, for "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("samples lag: 6 inserts and 0 samples"),
            std::string::npos);
  EXPECT_THROW(StatusText("{}"), IoError);
  // one peer writes by several writers
  caller.Insert({.writer = 6}, maker.Chunks(1, 8));
  EXPECT_THAT(StatusText(caller.Status().dump()),
              HasSubstr("\npeers     1; 2 open writers; "));
}

TEST(ServiceWatchTest, RatesCountFromTheStartOfTheService) {
  const EpisodeMaker maker;
  Shard shard(ConfigOf(maker, kFromOne), &Clock::Real());
  const auto chunks = maker.Chunks(1, 16);
  ASSERT_EQ(shard.TryInsert(5, 1, chunks[0]), InsertResult::kInserted);
  FakeClock clock;
  ServiceWatch watch(shard, clock.Now());
  clock.Advance(seconds(2));
  watch.Update(shard, clock.Now());
  EXPECT_EQ(watch.rates().inserted_steps, 0.0);
  EXPECT_EQ(watch.rates().inserted_items, 0.0);
  const auto before = static_cast<double>(shard.Status().inserted_steps);
  ASSERT_EQ(shard.TryInsert(5, 2, chunks[1]), InsertResult::kInserted);
  const auto after = static_cast<double>(shard.Status().inserted_steps);
  clock.Advance(seconds(2));
  watch.Update(shard, clock.Now());
  EXPECT_EQ(watch.rates().inserted_steps, (after - before) / 2.0);
  EXPECT_GT(after, before);
}

// A reader takes a lower count for a loss.
TEST(ReplayServiceTest, AnswersWithoutItemsCountTheSteps) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kTight));
  Caller caller(service.endpoint());
  caller.Insert({.writer = 5}, maker.Chunks(1, 4));
  const uint64_t first = caller.StartSample(1000, 100);
  const uint64_t behind = caller.StartSample(1000, 100);
  EXPECT_EQ(caller.WaitForBatch(first, maker.shape).total_steps(), 4);
  EXPECT_EQ(caller.WaitForBatch(behind, maker.shape).total_steps(), 4);
  service.Close();
  const auto batch =
      caller.WaitForBatch(caller.StartSample(3, 20'000), maker.shape);
  EXPECT_EQ(batch.state(), BatchState::kClosed);
  EXPECT_EQ(batch.total_steps(), 4);
}

TEST(ReplayServiceTest, CloseAnswersWhatWaits) {
  const EpisodeMaker maker;
  RunningService service(ConfigOf(maker, kTight));
  Caller caller(service.endpoint());
  const uint64_t id = caller.StartSample(3, 20'000);
  caller.Status();  // the request before it has arrived
  service.Close();
  EXPECT_EQ(caller.WaitForBatch(id, maker.shape).state(), BatchState::kClosed);
  EXPECT_EQ(caller.Insert({.writer = 5}, maker.Chunks(1, 4)).state,
            InsertState::kClosed);
}

}  // namespace
}  // namespace replicant::replay
