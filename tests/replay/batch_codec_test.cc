#include "replay/batch_codec.h"

#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/rpc/wire.h"
#include "replay/shard.h"
#include "tests/replay/episodes.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using testing::EpisodeMaker;

constexpr size_t kNoLimit = size_t{1} << 30;

ShardConfig ConfigOf(const EpisodeMaker& maker, int64_t n_step, int64_t stack) {
  ShardConfig config;
  config.shape = maker.shape;
  config.tables = {{.name = "t",
                    .n_step = {.n_step = n_step, .stack = stack},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  config.tables[0].sampler = SelectorKind::kUniform;
  return config;
}

SampledBatch Draw(Shard& shard, const EpisodeMaker& maker, int64_t count) {
  uint64_t sequence = 0;
  for (uint64_t episode = 1; episode <= 3; ++episode) {
    for (auto& group :
         maker.Groups(episode, 5 * static_cast<int64_t>(episode) - 4)) {
      EXPECT_EQ(shard.TryInsert(1, ++sequence, std::move(group)),
                InsertResult::kInserted);
    }
  }
  SampledBatch batch;
  EXPECT_EQ(shard.TrySample(0, count, "test", &batch), count);
  return batch;
}

// Episodes of 1, 6 and 11 steps: stacks at the start, groups that a window
// straddles, and n-steps that jump over whole groups.
TEST(BatchCodecTest, EveryItemComesOutAsItsStepsWentIn) {
  for (const int64_t n_step : {1, 3, 9}) {
    for (const int64_t stack : {1, 3, 6}) {
      for (const FrameCodec codec :
           {FrameCodec::kNone, FrameCodec::kLz4, FrameCodec::kZstd}) {
        SCOPED_TRACE(::testing::Message() << "n " << n_step << " stack "
                                          << stack << " " << ToString(codec));
        EpisodeMaker maker;
        maker.shape.frame_bytes = 300;
        maker.codec = codec;
        Shard shard(ConfigOf(maker, n_step, stack), &Clock::Real());
        const SampledBatch batch = Draw(shard, maker, 64);
        const BatchMessage read(
            EncodeBatch(batch, BatchState::kFull, maker.shape, stack, kNoLimit),
            maker.shape);
        ASSERT_EQ(read.size(), 64);
        EXPECT_EQ(read.stack(), stack);
        EXPECT_EQ(read.table_size(), 18);
        FrameDecoder decoder;
        std::vector<std::byte> scratch;
        std::vector<std::byte> frames(static_cast<size_t>(stack * 300));
        std::vector<std::byte> next_frames(frames.size());
        for (int64_t i = 0; i < read.size(); ++i) {
          const SampledItem& item = read.items()[static_cast<size_t>(i)];
          const SampledItem& drawn = batch.items[static_cast<size_t>(i)];
          ASSERT_EQ(item.key, drawn.key);
          ASSERT_EQ(item.probability, drawn.probability);
          ASSERT_EQ(item.reward, drawn.reward);
          ASSERT_EQ(item.discount, drawn.discount);
          ASSERT_EQ(item.times_sampled, drawn.times_sampled);
          const uint64_t episode =
              batch.GroupOf(drawn, item.step).view.episode();
          const auto equal = [](std::span<const std::byte> a,
                                const std::vector<std::byte>& b) {
            return std::ranges::equal(a, b);
          };
          ASSERT_TRUE(equal(read.Observation(i),
                            maker.Observation(episode, item.step)));
          ASSERT_TRUE(equal(read.NextObservation(i),
                            maker.Observation(episode, item.step + item.n)));
          ASSERT_TRUE(equal(read.Action(i), maker.Action(episode, item.step)));
          read.DecodeFrames(i, decoder, scratch, frames, next_frames);
          ASSERT_EQ(frames, maker.Stack(episode, item.step, stack));
          ASSERT_EQ(next_frames,
                    maker.Stack(episode, item.step + item.n, stack));
        }
      }
    }
  }
}

TEST(BatchCodecTest, SendsOnlyTheFramesThatTheStacksNeed) {
  EpisodeMaker maker;
  maker.shape.frame_bytes = 300;
  maker.codec = FrameCodec::kNone;
  Shard shard(ConfigOf(maker, /*n_step=*/9, /*stack=*/1), &Clock::Real());
  const SampledBatch batch = Draw(shard, maker, 32);
  const rpc::Message message =
      EncodeBatch(batch, BatchState::kFull, maker.shape, 1, kNoLimit);
  // two frames an item, each in a frame group with a header of 20 bytes, and
  // what lies between them where they share one
  EXPECT_LT(message[2].size(), 32u * 4 * 320);
}

TEST(BatchCodecTest, AnEmptyBatchTellsItsState) {
  EpisodeMaker maker;
  const BatchMessage read(
      EncodeBatch({}, BatchState::kTimeout, maker.shape, 1, kNoLimit),
      maker.shape);
  EXPECT_EQ(read.size(), 0);
  EXPECT_EQ(read.state(), BatchState::kTimeout);
}

TEST(BatchCodecTest, RefusesABatchThatNoReaderWouldAccept) {
  EpisodeMaker maker;
  Shard shard(ConfigOf(maker, 1, 1), &Clock::Real());
  const SampledBatch batch = Draw(shard, maker, 4);
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>([&] {
              EncodeBatch(batch, BatchState::kFull, maker.shape, 1, 100);
            }),
            "replay.sample: 4 items make 160 bytes of rows; at most 100 are "
            "allowed; hint: ask for fewer items at once");
}

TEST(BatchCodecTest, RefusesSegmentsThatDoNotHoldTheFrames) {
  EpisodeMaker maker;
  maker.shape.frame_bytes = 300;
  Shard shard(ConfigOf(maker, 1, 3), &Clock::Real());
  const SampledBatch batch = Draw(shard, maker, 8);
  // written as for stacks of one frame, read as for stacks of three
  rpc::Message message =
      EncodeBatch(batch, BatchState::kFull, maker.shape, 1, kNoLimit);
  std::vector<std::byte> header(message[0].bytes().begin(),
                                message[0].bytes().end());
  header[17] = std::byte{3};
  message[0] = rpc::Frame::Own(std::move(header));
  EXPECT_THROW(BatchMessage(std::move(message), maker.shape),
               rpc::MalformedMessage);
}

}  // namespace
}  // namespace replicant::replay
