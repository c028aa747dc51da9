#include "replay/client/local_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "tests/replay/episodes.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

constexpr int64_t kFrameBytes = 48;

LocalReplayOptions Options() {
  LocalReplayOptions options;
  options.shard.shape = {
      .observation_bytes = 4, .action_bytes = 1, .frame_bytes = kFrameBytes};
  TableConfig table;
  table.sampler = SelectorKind::kUniform;
  table.n_step = {.n_step = 2, .discount = 0.5, .stack = 2};
  table.rate_limiter = {
      .samples_per_insert = 4.0, .min_size_to_sample = 4, .error_buffer = 64.0};
  options.shard.tables = {table};
  options.group_steps = 4;
  options.batch_size = 8;
  return options;
}

std::vector<std::byte> Filled(size_t size, int64_t value) {
  return std::vector<std::byte>(size, static_cast<std::byte>(value));
}

// Step t of the episode has t in every byte, and reward t.
void WriteStep(LocalReplay::Writer& writer, int64_t t) {
  const auto observation = Filled(4, t);
  const auto frame = Filled(kFrameBytes, t);
  const auto action = Filled(1, t);
  writer.Append({.observation = observation,
                 .frame = frame,
                 .action = action,
                 .reward = static_cast<float>(t)});
}

TEST(LocalReplayTest, GivesBackWhatWasWritten) {
  LocalReplay replay(Options());
  LocalReplay::Writer writer(&replay, 1);
  writer.BeginEpisode();
  for (int64_t t = 0; t < 10; ++t) WriteStep(writer, t);
  writer.EndEpisode(Filled(4, 10), Filled(kFrameBytes, 10));
  Batch batch;
  ASSERT_TRUE(replay.Next(&batch));
  ASSERT_EQ(batch.size, 8);
  ASSERT_EQ(batch.form, BatchForm{.stack = 2});
  for (size_t i = 0; i < 8; ++i) {
    const auto t = static_cast<int64_t>(batch.actions.bytes()[i]);
    const int64_t end = std::min<int64_t>(t + 2, 10);
    EXPECT_EQ(batch.observations.bytes()[i * 4], static_cast<std::byte>(t));
    EXPECT_EQ(batch.next_observations.bytes()[i * 4],
              static_cast<std::byte>(end));
    const auto* frames = batch.frames.bytes().data() + i * 2 * kFrameBytes;
    EXPECT_EQ(frames[0], static_cast<std::byte>(std::max<int64_t>(t - 1, 0)));
    EXPECT_EQ(frames[kFrameBytes], static_cast<std::byte>(t));
    const auto* next = batch.next_frames.bytes().data() + i * 2 * kFrameBytes;
    EXPECT_EQ(next[kFrameBytes], static_cast<std::byte>(end));
    const auto reward = static_cast<float>(t);
    EXPECT_FLOAT_EQ(batch.rewards[i],
                    end - t == 2 ? reward + 0.5F * (reward + 1.0F) : reward);
    EXPECT_FLOAT_EQ(batch.discounts[i], end - t == 2 ? 0.25F : 0.5F);
    EXPECT_EQ(batch.weights[i], 1.0F);
  }
}

TEST(LocalReplayTest, TheRateLimiterLetsBothSidesTakeTurns) {
  LocalReplay replay(Options());
  LocalReplay::Writer writer(&replay, 1);
  Batch batch;
  EXPECT_FALSE(replay.Next(&batch));
  writer.BeginEpisode();
  int64_t num_steps = 0, num_batches = 0;
  while (num_steps < 400) {
    if (replay.Next(&batch)) {
      ++num_batches;
    } else {
      ASSERT_TRUE(replay.MayWrite());
      WriteStep(writer, num_steps++ % 100);
    }
  }
  // 4 samples for each step beyond the first ones, within the buffer
  EXPECT_NEAR(static_cast<double>(num_batches * 8), 4.0 * 400, 100);
}

TEST(LocalReplayTest, WritersWaitWhenNobodyDraws) {
  LocalReplay replay(Options());
  LocalReplay::Writer writer(&replay, 1);
  writer.BeginEpisode();
  int64_t num_steps = 0;
  while (replay.MayWrite() && num_steps < 1000) WriteStep(writer, num_steps++);
  EXPECT_LT(num_steps, 40);
  Batch batch;
  while (!replay.MayWrite()) ASSERT_TRUE(replay.Next(&batch));
}

TEST(LocalReplayTest, DrawsAreTheSameForTheSameCalls) {
  const auto draw = [] {
    LocalReplay replay(Options());
    LocalReplay::Writer writer(&replay, 1);
    writer.BeginEpisode();
    for (int64_t t = 0; t < 20; ++t) WriteStep(writer, t);
    Batch batch;
    EXPECT_TRUE(replay.Next(&batch));
    const auto actions = batch.actions.bytes();
    return std::vector<std::byte>(actions.begin(), actions.end());
  };
  EXPECT_EQ(draw(), draw());
}

// Whether a frame is kept or not, it is that of its step.
TEST(LocalReplayTest, KeptFramesAreThoseOfTheirSteps) {
  const auto num_kept = [](const KeptFrames::Options& kept) {
    LocalReplayOptions options = Options();
    options.kept_frames = kept;
    LocalReplay replay(options);
    LocalReplay::Writer writer(&replay, 1);
    FrameRoom room;
    Batch batch;
    int64_t count = 0;
    for (int episode = 0; episode < 20; ++episode) {
      writer.BeginEpisode();
      for (int64_t t = 0; t < 10; ++t) WriteStep(writer, t);
      writer.EndEpisode(Filled(4, 10), Filled(kFrameBytes, 10));
      while (replay.Next(&batch)) {
        for (int64_t row = 0; row < batch.size; ++row) {
          const auto t = static_cast<int64_t>(
              batch.actions.bytes()[static_cast<size_t>(row)]);
          const ItemFrames frames = batch.FramesOf(row, room);
          EXPECT_EQ(testing::Joined(frames.frames.last(1), kFrameBytes),
                    Filled(kFrameBytes, t));
          EXPECT_EQ(testing::Joined(frames.next_frames.last(1), kFrameBytes),
                    Filled(kFrameBytes, std::min<int64_t>(t + 2, 10)));
          if (!frames.numbers.empty() && frames.numbers.back() != 0) ++count;
        }
      }
    }
    return count;
  };
  constexpr int64_t kAll = 1'000'000;
  const int64_t all = num_kept({.max_bytes = kAll});
  EXPECT_GT(all, 500);
  EXPECT_EQ(num_kept({.max_bytes = kAll, .decompresses = false}), all);
  // room for four of twenty episodes
  const int64_t some = num_kept({.max_bytes = 4 * 11 * kFrameBytes});
  EXPECT_GT(some, 0);
  EXPECT_LT(some, all);
  EXPECT_EQ(num_kept({.max_bytes = 0}), 0);
}

// A writer that repeats its episode continues where it stopped.
TEST(LocalReplayTest, AWriterPassesOverWhatItHasSent) {
  for (const int64_t stop : {3, 4, 6, 10, 11}) {
    LocalReplay whole(Options()), parts(Options());
    LocalReplay::Writer uncut(&whole, 1), before(&parts, 1), after(&parts, 1);
    const auto write = [&](LocalReplay::Writer& writer, int64_t end) {
      writer.BeginEpisode();
      for (int64_t t = 0; t < std::min<int64_t>(end, 10); ++t) {
        WriteStep(writer, t);
      }
      if (end > 10) writer.EndEpisode(Filled(4, 10), Filled(kFrameBytes, 10));
    };
    write(uncut, 11);
    write(before, stop);
    after.Restore(before.state());
    write(after, 11);
    for (LocalReplay::Writer* writer : {&uncut, &after}) write(*writer, 11);
    const ShardStatus wanted = whole.shard().Status(),
                      status = parts.shard().Status();
    EXPECT_EQ(status.inserted_steps, 20) << stop;
    EXPECT_EQ(status.duplicate_groups, 0) << stop;
    EXPECT_EQ(status.tables[0].inserts, wanted.tables[0].inserts) << stop;
    EXPECT_EQ(parts.shard().LastSequence(1), whole.shard().LastSequence(1));
  }
}

// With goals in hindsight the newest episode is a copy of the one repeated.
TEST(LocalReplayTest, AWriterPassesOverALongerEpisodeIfItsOwnIsOver) {
  LocalReplay replay(Options());
  LocalReplay::Writer before(&replay, 1), after(&replay, 1);
  const auto write = [](LocalReplay::Writer& writer, int64_t length) {
    writer.BeginEpisode();
    for (int64_t t = 0; t < length; ++t) WriteStep(writer, t);
    writer.EndEpisode(Filled(4, length), Filled(kFrameBytes, length));
  };
  write(before, 10);
  write(before, 3);
  after.Restore(before.state());
  write(after, 10);
  EXPECT_EQ(replay.shard().Status().inserted_steps, 13);
  EXPECT_EQ(after.state().sequence, before.state().sequence);
  EXPECT_EQ(after.state().episode, before.state().episode);
  EXPECT_EQ(after.state().num_sent, before.state().num_sent);
  write(after, 5);
  EXPECT_EQ(replay.shard().Status().inserted_steps, 18);
}

TEST(LocalReplayTest, AnEpisodeLargerThanTheMemoryIsRefused) {
  LocalReplayOptions options = Options();
  options.shard.max_bytes = 2000;
  // no item is whole before the episode's end
  options.shard.tables[0].n_step.n_step = 1000;
  LocalReplay replay(options);
  LocalReplay::Writer writer(&replay, 1);
  writer.BeginEpisode();
  const std::string message =
      replicant::testing::MessageOf<InvalidArgument>([&writer] {
        for (int64_t t = 0; t < 100; ++t) WriteStep(writer, t);
      });
  EXPECT_THAT(message,
              ::testing::MatchesRegex(
                  "replay: no room: open episodes and waiting items of 1 "
                  "writers hold [0-9]+ of max_bytes 2000; hint: raise "
                  "replay.max_bytes"));
}

TEST(LocalReplayTest, PrioritiesDecideWhatIsDrawn) {
  LocalReplayOptions options = Options();
  options.shard.tables[0].sampler = SelectorKind::kPrioritized;
  options.shard.tables[0].priority_exponent = 1.0;
  options.shard.tables[0].rate_limiter.error_buffer = 1e6;
  options.importance.exponent = 1.0;
  LocalReplay replay(options);
  LocalReplay::Writer writer(&replay, 1);
  writer.BeginEpisode();
  for (int64_t t = 0; t < 6; ++t) WriteStep(writer, t);
  writer.EndEpisode(Filled(4, 6), Filled(kFrameBytes, 6));
  Batch batch;
  // all but step 3 lose their priority, as they are drawn
  for (int i = 0; i < 40; ++i) {
    if (!replay.Next(&batch)) break;
    std::vector<float> priorities;
    for (size_t k = 0; k < 8; ++k) {
      priorities.push_back(batch.actions.bytes()[k] == std::byte{3} ? 1.0F
                                                                    : 0.0F);
    }
    replay.UpdatePriorities(batch, priorities);
  }
  for (const std::byte action : batch.actions.bytes()) {
    EXPECT_EQ(action, std::byte{3});
  }
}

}  // namespace
}  // namespace replicant::replay
