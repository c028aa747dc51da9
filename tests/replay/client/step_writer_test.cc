#include "replay/client/step_writer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/thread.h"
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
  return testing::OpenTable(maker, {.n_step = 2, .stack = 2});
}

// Appends steps [begin, end) of an episode.
AppendResult AppendSteps(StepWriter& writer, const EpisodeMaker& maker,
                         uint64_t episode, int64_t begin, int64_t end) {
  AppendResult result = AppendResult::kOk;
  for (int64_t t = begin; t < end && result == AppendResult::kOk; ++t) {
    const auto observation = maker.Observation(episode, t);
    const auto frame = maker.Frame(episode, t);
    const auto action = maker.Action(episode, t);
    result = writer.Append({observation, frame, action, maker.Reward(t), 1.0f},
                           After(seconds(60)));
  }
  return result;
}

AppendResult WriteEpisode(StepWriter& writer, const EpisodeMaker& maker,
                          uint64_t episode, int64_t num_steps) {
  writer.BeginEpisode();
  const auto result = AppendSteps(writer, maker, episode, 0, num_steps);
  if (result != AppendResult::kOk) return result;
  return writer.EndEpisode(maker.Observation(episode, num_steps),
                           maker.Frame(episode, num_steps), After(seconds(60)));
}

// Every item of the first table, in the order it went in.
SampledBatch AllItems(const ShardConfig& config, Shard& shard) {
  SampledBatch batch;
  const int64_t size = shard.Status().tables[0].size;
  EXPECT_EQ(config.tables[0].max_times_sampled, 1);
  EXPECT_EQ(shard.TrySample(0, size, "test", &batch), size);
  return batch;
}

// End to end: what a writer streams is what the same chunks make when they are
// given to a shard in this process.
TEST(StepWriterTest, WhatArrivesEqualsALocalShard) {
  const EpisodeMaker maker = MakePixels();
  ShardConfig config = ConfigOf(maker);
  config.tables[0].sampler = SelectorKind::kFifo;
  config.tables[0].max_times_sampled = 1;
  config.tables[0].rate_limiter = {.mode = RateLimiterMode::kQueue};
  RunningService service(config);
  Shard local(config, &Clock::Real());
  StepWriter writer({.endpoint = service.endpoint(),
                     .shape = maker.shape,
                     .group_steps = maker.group_steps});
  uint64_t sequence = 0;
  for (uint64_t episode = 1; episode <= 40; ++episode) {
    const auto num_steps = static_cast<int64_t>(episode % 11) + 1;
    ASSERT_EQ(WriteEpisode(writer, maker, episode, num_steps),
              AppendResult::kOk);
    // an episode whose steps fill its chunks ends with a separate chunk
    for (auto& chunk : maker.Chunks(episode, num_steps)) {
      ASSERT_EQ(local.TryInsert(1, ++sequence, std::move(chunk)),
                InsertResult::kInserted);
    }
  }
  ASSERT_TRUE(writer.Flush(After(seconds(60))));
  const SampledBatch there = AllItems(config, service.shard());
  const SampledBatch here = AllItems(config, local);
  ASSERT_EQ(there.items.size(), here.items.size());
  for (size_t i = 0; i < here.items.size(); ++i) {
    const SampledItem& a = there.items[i];
    const SampledItem& b = here.items[i];
    ASSERT_EQ(a.step, b.step);
    ASSERT_EQ(a.n, b.n);
    ASSERT_EQ(a.reward, b.reward);
    ASSERT_EQ(a.discount, b.discount);
    for (const int64_t step : {a.step, a.step + a.n}) {
      const ChunkView& ga = there.ChunkOf(a, step).view;
      const ChunkView& gb = here.ChunkOf(b, step).view;
      ASSERT_EQ(ga.episode(), gb.episode());
      ASSERT_TRUE(std::ranges::equal(ga.Observation(step - ga.first_step()),
                                     gb.Observation(step - gb.first_step())));
    }
  }
  EXPECT_EQ(writer.metrics().acknowledged_steps,
            service.shard().Status().inserted_steps);
}

// The service dies and another takes its place: without its memory the open
// episode cannot go on, and everything else is there once.
TEST(StepWriterTest, ARestartedServiceGetsWhatWasNotAcknowledgedOnce) {
  const EpisodeMaker maker = MakePixels();
  auto service = std::make_unique<RunningService>(ConfigOf(maker));
  const std::string endpoint = service->endpoint();
  StepWriter writer({.endpoint = endpoint,
                     .shape = maker.shape,
                     .group_steps = 4,
                     .queue_groups = 1000});
  ASSERT_EQ(WriteEpisode(writer, maker, 1, 8), AppendResult::kOk);
  writer.BeginEpisode();
  ASSERT_EQ(AppendSteps(writer, maker, 2, 0, 8), AppendResult::kOk);
  ASSERT_TRUE(writer.Flush(After(seconds(60))));
  service.reset();

  // the rest of episode 2, then two more, while nobody is there
  ASSERT_EQ(AppendSteps(writer, maker, 2, 8, 12), AppendResult::kOk);
  service = std::make_unique<RunningService>(ConfigOf(maker), endpoint);
  ASSERT_TRUE(writer.Flush(After(seconds(60))));
  EXPECT_EQ(AppendSteps(writer, maker, 2, 12, 13),
            AppendResult::kEpisodeDropped);
  ASSERT_EQ(WriteEpisode(writer, maker, 3, 8), AppendResult::kOk);
  ASSERT_EQ(WriteEpisode(writer, maker, 4, 5), AppendResult::kOk);
  ASSERT_TRUE(writer.Flush(After(seconds(60))));
  const ShardStatus status = service->shard().Status();
  EXPECT_EQ(status.inserted_steps, 13);
  EXPECT_EQ(status.tables[0].size, 13);
  EXPECT_EQ(status.dropped_groups, 1);
  const StepWriterMetrics metrics = writer.metrics();
  EXPECT_EQ(metrics.dropped_episodes, 1);
  EXPECT_EQ(metrics.dropped_steps, 4);
  EXPECT_EQ(metrics.acknowledged_steps, 16 + 13);
  EXPECT_EQ(metrics.appended_steps, 16 + 4 + 13);
}

// A chunk holds priorities for all of its steps or for none.
TEST(StepWriterTest, AnyStepMayHaveAPriority) {
  const EpisodeMaker maker = MakePixels();
  ShardConfig config = ConfigOf(maker);
  config.tables[0].sampler = SelectorKind::kFifo;
  config.tables[0].max_times_sampled = 1;
  config.tables[0].rate_limiter = {.mode = RateLimiterMode::kQueue};
  RunningService service(config);
  StepWriter writer(
      {.endpoint = service.endpoint(), .shape = maker.shape, .group_steps = 3});
  writer.BeginEpisode();
  for (int64_t t = 0; t < 9; ++t) {
    const auto observation = maker.Observation(1, t);
    const auto frame = maker.Frame(1, t);
    const auto action = maker.Action(1, t);
    Step step{observation, frame, action, 0.0f, 1.0f};
    if (t % 4 == 0) step.priority = 0.25f * static_cast<float>(t);
    ASSERT_EQ(writer.Append(step, After(seconds(60))), AppendResult::kOk);
  }
  ASSERT_EQ(writer.EndEpisode(maker.Observation(1, 9), maker.Frame(1, 9),
                              After(seconds(60))),
            AppendResult::kOk);
  ASSERT_TRUE(writer.Flush(After(seconds(60))));
  const SampledBatch batch = AllItems(config, service.shard());
  ASSERT_EQ(batch.items.size(), 9u);
  for (const SampledItem& item : batch.items) {
    // 0, 1 and 2; the others have the largest so far, at least 1
    EXPECT_EQ(item.priority, item.step == 0   ? 0.0f
                             : item.step == 8 ? 2.0f
                                              : 1.0f);
  }
}

// Chunks that gathered while the service was away are more than one message
// takes.
TEST(StepWriterTest, NoMessageIsLongerThanItsLimit) {
  const EpisodeMaker maker = MakePixels(FrameCodec::kNone);
  std::optional<RunningService> service(std::in_place, ConfigOf(maker));
  const std::string endpoint = service->endpoint();
  service.reset();
  // a chunk is longer than 300 bytes: two fit into a message, three do not
  StepWriter writer({.endpoint = endpoint,
                     .shape = maker.shape,
                     .group_steps = 1,
                     .codec = FrameCodec::kNone,
                     .message_bytes = 900});
  ASSERT_EQ(WriteEpisode(writer, maker, 1, 19), AppendResult::kOk);
  service.emplace(ConfigOf(maker), endpoint);
  ASSERT_TRUE(writer.Flush(After(seconds(60))));
  EXPECT_EQ(service->shard().Status().inserted_steps, 19);
  EXPECT_GE(service->counts().inserts, 10);
}

// A writer to nowhere whose queue is full, three steps into an episode.
struct FullWriter {
  FullWriter() {
    writer.BeginEpisode();
    EXPECT_EQ(AppendSteps(writer, maker, 1, 0, 3), AppendResult::kOk);
  }
  AppendResult Append(Clock::TimePoint deadline) {
    return writer.Append({observation, frame, action}, deadline);
  }

  const EpisodeMaker maker = MakePixels();
  // nobody listens there
  StepWriter writer{{.endpoint = "tcp://127.0.0.1:1",
                     .shape = maker.shape,
                     .group_steps = 1,
                     .queue_groups = 3,
                     .append_timeout = milliseconds(5)}};
  const std::vector<std::byte> observation = maker.Observation(1, 3);
  const std::vector<std::byte> frame = maker.Frame(1, 3);
  const std::vector<std::byte> action = maker.Action(1, 3);
};

// StepSink::Append() waits for append_timeout at most.
TEST(StepWriterTest, ASinksFullQueueDropsTheEpisodeAfterTheTimeout) {
  FullWriter full;
  StepSink& sink = full.writer;
  sink.Append({full.observation, full.frame, full.action});
  const StepWriterMetrics metrics = full.writer.metrics();
  EXPECT_EQ(metrics.dropped_episodes, 1);
  EXPECT_EQ(metrics.dropped_steps, 4);
  // the rest of the episode is ignored
  sink.EndEpisode(full.observation, full.frame);
  EXPECT_EQ(full.writer.metrics().dropped_steps, 4);
}

TEST(StepWriterTest, AFullQueueDropsTheEpisodeAtTheDeadline) {
  FullWriter full;
  EXPECT_EQ(full.Append(After(milliseconds(5))), AppendResult::kEpisodeDropped);
  EXPECT_EQ(full.Append(After(seconds(99))), AppendResult::kEpisodeDropped);
  EXPECT_EQ(
      full.writer.EndEpisode(full.observation, full.frame, After(seconds(99))),
      AppendResult::kEpisodeDropped);
  const StepWriterMetrics metrics = full.writer.metrics();
  EXPECT_EQ(metrics.dropped_episodes, 1);
  EXPECT_EQ(metrics.dropped_steps, 4);
  EXPECT_EQ(metrics.queued_chunks, 0);
  // the next one finds room
  full.writer.BeginEpisode();
  EXPECT_EQ(AppendSteps(full.writer, full.maker, 2, 0, 3), AppendResult::kOk);
  EXPECT_FALSE(full.writer.Flush(After(milliseconds(1))));
}

TEST(StepWriterTest, AWaitForRoomGivesNothingUpAtItsDeadline) {
  FullWriter full;
  EXPECT_FALSE(full.writer.AwaitRoom(After(milliseconds(5))));
  EXPECT_EQ(full.writer.metrics().dropped_episodes, 0);
  EXPECT_EQ(full.writer.metrics().queued_chunks, 3);
  full.writer.StopWaiting();
  EXPECT_TRUE(full.writer.AwaitRoom(After(seconds(99))));
}

TEST(StepWriterTest, StopWaitingEndsAWaitForRoom) {
  FullWriter full;
  const Thread stopper("stopper", [&](const Thread::StopToken&) {
    std::this_thread::sleep_for(milliseconds(20));
    full.writer.StopWaiting();
  });
  EXPECT_EQ(full.Append(After(std::chrono::hours(1))),
            AppendResult::kEpisodeDropped);
  EXPECT_EQ(full.writer.metrics().dropped_steps, 4);
}

TEST(StepWriterTest, ABindingLimiterHoldsTheWriterUpAndLosesNothing) {
  const EpisodeMaker maker = MakePixels();
  ShardConfig config = ConfigOf(maker);
  config.tables[0].rate_limiter = {
      .samples_per_insert = 1.0, .min_size_to_sample = 2, .error_buffer = 4.0};
  RunningService service(config, replicant::testing::OwnAddress(),
                         RunningService::FastTicks(), {.credits = 3});
  StepWriter writer({.endpoint = service.endpoint(),
                     .shape = maker.shape,
                     .group_steps = 1,
                     .queue_groups = 1000,
                     .wait = milliseconds(20)});
  ASSERT_EQ(WriteEpisode(writer, maker, 1, 100), AppendResult::kOk);
  EXPECT_FALSE(writer.Flush(After(milliseconds(50))));
  SampledBatch batch;
  for (int i = 0; i < 98; ++i) {
    ASSERT_EQ(service.shard().Sample(0, 1, "test", After(seconds(60)), &batch),
              SampleResult::kOk);
  }
  ASSERT_TRUE(writer.Flush(After(seconds(60))));
  EXPECT_EQ(service.shard().Status().tables[0].inserts, 100);
  EXPECT_EQ(service.shard().Status().duplicate_groups, 0);
}

TEST(StepWriterTest, CloseInMidEpisodeFreesWhatTheServiceHeldForIt) {
  const EpisodeMaker maker = MakePixels();
  RunningService service(ConfigOf(maker));
  StepWriter writer(
      {.endpoint = service.endpoint(), .shape = maker.shape, .group_steps = 1});
  writer.BeginEpisode();
  ASSERT_EQ(AppendSteps(writer, maker, 1, 0, 5), AppendResult::kOk);
  ASSERT_TRUE(writer.Flush(After(seconds(60))));
  writer.Close();
  EXPECT_EQ(service.shard().Status().abandoned_steps, 2);
  EXPECT_EQ(service.shard().Status().num_writers, 0);
  writer.BeginEpisode();
  EXPECT_EQ(AppendSteps(writer, maker, 2, 0, 1), AppendResult::kClosed);
}

TEST(StepWriterTest, RefusesWhatDoesNotFit) {
  const EpisodeMaker maker = MakePixels();
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>([&] {
              StepWriter writer({.endpoint = "tcp://127.0.0.1:1",
                                 .shape = maker.shape,
                                 .group_steps = 0});
            }),
            "StepWriter: group_steps 0 is outside [1, 255]");
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>([&] {
              StepWriter writer({.endpoint = "tcp://127.0.0.1:1",
                                 .shape = {.frame_bytes = 1 << 25},
                                 .group_steps = 8});
            }),
            "StepWriter: a chunk of 8 steps can have 301990096 bytes, but a "
            "message at most 268435456; hint: group_steps 6");
  EpisodeMaker other = maker;
  other.shape.action_bytes = 4;
  RunningService service(ConfigOf(other));
  StepWriter writer({.endpoint = service.endpoint(),
                     .name = "actor 3",
                     .shape = maker.shape,
                     .group_steps = 1});
  EXPECT_EQ(replicant::testing::MessageOf<CommError>([&] {
              writer.BeginEpisode();
              static_cast<void>(AppendSteps(writer, maker, 1, 0, 1));
              static_cast<void>(writer.Flush(After(seconds(60))));
            }),
            service.endpoint() +
                ": the replay's steps have 16 + 300 + 4 bytes (observation + "
                "frame + action), but writer 'actor 3' has 16 + 300 + 8; hint: "
                "give both the same task");
}

}  // namespace
}  // namespace replicant::replay
