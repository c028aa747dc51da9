#include "replay/format/batch_codec.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/rpc/wire.h"
#include "replay/format/batch_message.h"
#include "replay/table/shard.h"
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
    for (auto& chunk :
         maker.Chunks(episode, 5 * static_cast<int64_t>(episode) - 4)) {
      EXPECT_EQ(shard.TryInsert(1, ++sequence, std::move(chunk)),
                InsertResult::kInserted);
    }
  }
  SampledBatch batch;
  EXPECT_EQ(shard.TrySample(0, count, "test", &batch), count);
  return batch;
}

// Memory for `count` items of `rows`, from row 2 on.
BatchTarget MakeTarget(int64_t count, const StepShape& shape,
                       const BatchForm& form, uint64_t segments_bytes) {
  const auto rows = static_cast<uint64_t>(count + 2);
  uint64_t end = 0;
  const auto take = [&](int64_t row_bytes) {
    const uint64_t begin = end;
    end += rows * static_cast<uint64_t>(row_bytes);
    return begin;
  };
  BatchTarget target;
  target.place.first_row = 2;
  const RowBytes row = form.BytesOf(shape);
  target.place.observations = take(row.observations);
  target.place.next_observations = take(row.next_observations);
  target.place.actions = take(row.actions);
  target.place.frames = take(row.frames);
  target.place.next_frames = take(row.next_frames);
  target.place.segments = end;
  target.place.segments_bytes = segments_bytes;
  target.memory = rpc::SharedMemory::Create(end + segments_bytes);
  target.place.memory = target.memory->handle();
  target.Check(static_cast<uint32_t>(count), shape, form);
  return target;
}

void ExpectItems(const BatchMessage& read, const SampledBatch& batch,
                 const EpisodeMaker& maker, int64_t stack) {
  ASSERT_EQ(read.size(), static_cast<int64_t>(batch.items.size()));
  EXPECT_EQ(read.form(), BatchForm{.stack = stack});
  EXPECT_EQ(read.table_size(), 18);
  EXPECT_EQ(read.total_steps(), 18);
  FrameRoom room;
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
    ASSERT_EQ(item.age, drawn.age);
    const uint64_t episode = batch.ChunkOf(drawn, item.step).view.episode();
    ASSERT_TRUE(std::ranges::equal(read.Observation(i),
                                   maker.Observation(episode, item.step)));
    ASSERT_TRUE(
        std::ranges::equal(read.NextObservation(i),
                           maker.Observation(episode, item.step + item.n)));
    ASSERT_TRUE(
        std::ranges::equal(read.Action(i), maker.Action(episode, item.step)));
    const ItemFrames found = read.LocateFrames(i, room, frames, next_frames);
    ASSERT_EQ(testing::Joined(found.frames, 300),
              maker.Stack(episode, item.step, stack));
    ASSERT_EQ(testing::Joined(found.next_frames, 300),
              maker.Stack(episode, item.step + item.n, stack));
  }
}

// Episodes of 1, 6 and 11 steps: stacks at the start, chunks that a window
// straddles, and n-steps that jump over whole chunks.
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
        const auto expect_items = [&](const BatchTarget* target) {
          rpc::Message message =
              EncodeBatch(batch, BatchState::kFull, maker.shape,
                          {.stack = stack}, kNoLimit, target);
          const BatchMessage read(std::move(message), maker.shape, target);
          EXPECT_EQ(read.AreRowsInMemory(), target != nullptr);
          EXPECT_EQ(read.has_segments(),
                    target == nullptr || codec != FrameCodec::kNone);
          ExpectItems(read, batch, maker, stack);
        };
        expect_items(nullptr);
        const BatchTarget roomy =
            MakeTarget(64, maker.shape, {.stack = stack}, 1 << 20);
        expect_items(&roomy);
        // segments that find no room go with the message
        const BatchTarget narrow =
            MakeTarget(64, maker.shape, {.stack = stack}, 100);
        expect_items(&narrow);
      }
    }
  }
}

// The rows of window i, and zeros beyond its steps.
void ExpectWindow(const BatchMessage& read, int64_t i, uint64_t episode,
                  int64_t num_steps, const EpisodeMaker& maker) {
  const BatchForm& form = read.form();
  const SampledItem& item = read.items()[static_cast<size_t>(i)];
  ASSERT_EQ(item.n, std::min(form.window, num_steps - item.step));
  std::vector<std::byte> observations, actions, frames;
  const auto append = [](const std::vector<std::byte>& from,
                         std::vector<std::byte>* to) {
    to->insert(to->end(), from.begin(), from.end());
  };
  std::vector<float> rewards, discounts;
  for (int64_t t = item.step; t <= item.step + item.n; ++t) {
    append(maker.Observation(episode, t), &observations);
    if (t == item.step + item.n) break;
    append(maker.Action(episode, t), &actions);
    rewards.push_back(EpisodeMaker::Reward(t));
    discounts.push_back(1.0f);
  }
  for (int64_t t = item.step - form.stack + 1; t <= item.step + item.n; ++t) {
    append(maker.Frame(episode, std::max<int64_t>(0, t)), &frames);
  }
  const RowBytes row = form.BytesOf(maker.shape);
  observations.resize(static_cast<size_t>(row.observations));
  actions.resize(static_cast<size_t>(row.actions));
  frames.resize(static_cast<size_t>(row.frames));
  rewards.resize(static_cast<size_t>(form.window));
  discounts.resize(static_cast<size_t>(form.window));
  ASSERT_TRUE(std::ranges::equal(read.Observation(i), observations));
  ASSERT_TRUE(read.NextObservation(i).empty());
  ASSERT_TRUE(std::ranges::equal(read.Action(i), actions));
  ASSERT_TRUE(std::ranges::equal(read.StepRewards(i), rewards));
  ASSERT_TRUE(std::ranges::equal(read.StepDiscounts(i), discounts));
  FrameRoom room;
  std::vector<std::byte> decoded(frames.size(), std::byte{0xaa});
  ASSERT_EQ(
      testing::Joined(read.LocateFrames(i, room, decoded, {}).frames, 300),
      frames);
}

// Windows shorter and longer than episodes and chunks, with and without a
// stack: each frame once, and zeros beyond the end.
TEST(BatchCodecTest, EveryWindowComesOutAsItsStepsWentIn) {
  for (const int64_t window : {1, 4, 9}) {
    for (const int64_t stack : {1, 3}) {
      for (const FrameCodec codec : {FrameCodec::kNone, FrameCodec::kLz4}) {
        SCOPED_TRACE(::testing::Message() << "window " << window << " stack "
                                          << stack << " " << ToString(codec));
        const BatchForm form = {.stack = stack, .window = window};
        EpisodeMaker maker = testing::MakePixels(codec);
        ShardConfig config = ConfigOf(maker, 1, stack);
        config.tables[0].n_step.window = window;
        Shard shard(config, &Clock::Real());
        const SampledBatch batch = Draw(shard, maker, 64);
        const auto expect_windows = [&](const BatchTarget* target) {
          const BatchMessage read(
              EncodeBatch(batch, BatchState::kFull, maker.shape, form, kNoLimit,
                          target),
              maker.shape, target);
          ASSERT_EQ(read.form(), form);
          int64_t num_frames = 0;
          for (const SampledItem& item : batch.items) {
            num_frames += std::min(item.step, stack - 1) + item.n + 1;
          }
          EXPECT_EQ(read.num_frames(), num_frames);
          EXPECT_EQ(read.has_segments(),
                    target == nullptr || codec != FrameCodec::kNone);
          for (int64_t i = 0; i < read.size(); ++i) {
            const SampledItem& drawn = batch.items[static_cast<size_t>(i)];
            const uint64_t episode =
                batch.ChunkOf(drawn, drawn.step).view.episode();
            ExpectWindow(read, i, episode,
                         5 * static_cast<int64_t>(episode) - 4, maker);
          }
        };
        expect_windows(nullptr);
        // memory that was used before
        const BatchTarget roomy = MakeTarget(64, maker.shape, form, 1 << 21);
        std::ranges::fill(roomy.memory->bytes(), std::byte{0xbb});
        expect_windows(&roomy);
        const BatchTarget narrow = MakeTarget(64, maker.shape, form, 100);
        expect_windows(&narrow);
      }
    }
  }
}

// Catches frames that are sent once per stack: successive stacks share all
// frames but one.
TEST(BatchCodecTest, AWindowSendsEachFrameOnce) {
  EpisodeMaker maker = testing::MakePixels(FrameCodec::kNone);
  ShardConfig config = ConfigOf(maker, 1, /*stack=*/3);
  config.tables[0].n_step.window = 8;
  Shard shard(config, &Clock::Real());
  const SampledBatch batch = Draw(shard, maker, 32);
  const rpc::Message message =
      EncodeBatch(batch, BatchState::kFull, maker.shape,
                  {.stack = 3, .window = 8}, kNoLimit);
  // 8 + 3 frames, in up to four chunks with headers of 20 bytes and more
  EXPECT_LE(message[2].size(), 32u * (11 * 304 + 4 * 16));
}

TEST(BatchCodecTest, RefusesAPlaceOfMoreRowsThanABatchHas) {
  const EpisodeMaker maker;
  BatchTarget target = MakeTarget(4, maker.shape, {}, 0);
  target.place.first_row = 4'000'000'000;
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>(
                [&] { target.Check(4, maker.shape, {}); }),
            "replay.sample: place: 4 rows from row 4000000000 on; a batch has "
            "at most 65536");
}

TEST(BatchCodecTest, RefusesAPlaceOutsideTheMemory) {
  const EpisodeMaker maker;  // rows of 16 + 16 + 8 bytes
  BatchTarget target = MakeTarget(4, maker.shape, {}, 0);
  const auto why = [&](uint32_t count) {
    return replicant::testing::MessageOf<InvalidArgument>(
        [&] { target.Check(count, maker.shape, {}); });
  };
  EXPECT_EQ(why(5),
            "replay.sample: place: 56 bytes of actions at offset 192 do not "
            "fit into a memory of 240");
  target.place.segments = ~uint64_t{0};
  target.place.segments_bytes = 2;
  EXPECT_EQ(why(4),
            "replay.sample: place: 2 bytes of segments at offset "
            "18446744073709551615 do not fit into a memory of 240");
}

TEST(BatchCodecTest, RefusesAnAnswerInMemoryThatWasNotOffered) {
  const EpisodeMaker maker;
  Shard shard(ConfigOf(maker, 1, 1), &Clock::Real());
  const SampledBatch batch = Draw(shard, maker, 4);
  const BatchTarget target = MakeTarget(4, maker.shape, {}, 0);
  EXPECT_EQ(replicant::testing::MessageOf<rpc::MalformedMessage>([&] {
              const BatchMessage read(
                  EncodeBatch(batch, BatchState::kFull, maker.shape, {},
                              kNoLimit, &target),
                  maker.shape);
            }),
            "replay.sample reply: refers to memory that was not offered");
}

TEST(BatchCodecTest, SendsOnlyTheFramesThatTheStacksNeed) {
  EpisodeMaker maker;
  maker.shape.frame_bytes = 300;
  maker.codec = FrameCodec::kNone;
  Shard shard(ConfigOf(maker, /*n_step=*/9, /*stack=*/1), &Clock::Real());
  const SampledBatch batch = Draw(shard, maker, 32);
  const rpc::Message message =
      EncodeBatch(batch, BatchState::kFull, maker.shape, {}, kNoLimit);
  // two frames an item, each in a frame block with a header of 20 bytes, and
  // what lies between them where they share one
  EXPECT_LT(message[2].size(), 32u * 4 * 320);
}

TEST(BatchCodecTest, AnEmptyBatchTellsItsState) {
  EpisodeMaker maker;
  const BatchMessage read(
      EncodeBatch({}, BatchState::kTimeout, maker.shape, {}, kNoLimit),
      maker.shape);
  EXPECT_EQ(read.size(), 0);
  EXPECT_EQ(read.state(), BatchState::kTimeout);
}

TEST(BatchCodecTest, RefusesABatchThatNoReaderWouldAccept) {
  EpisodeMaker maker;
  Shard shard(ConfigOf(maker, 1, 1), &Clock::Real());
  const SampledBatch batch = Draw(shard, maker, 4);
  EXPECT_EQ(replicant::testing::MessageOf<InvalidArgument>([&] {
              EncodeBatch(batch, BatchState::kFull, maker.shape, {}, 100);
            }),
            "replay.sample: 4 items make 160 bytes of rows; at most 100 are "
            "allowed; hint: request fewer items at once");
}

TEST(BatchCodecTest, RefusesSegmentsThatDoNotHoldTheFrames) {
  EpisodeMaker maker;
  maker.shape.frame_bytes = 300;
  Shard shard(ConfigOf(maker, 1, 3), &Clock::Real());
  const SampledBatch batch = Draw(shard, maker, 8);
  // written as for stacks of one frame, read as for stacks of three
  rpc::Message message =
      EncodeBatch(batch, BatchState::kFull, maker.shape, {}, kNoLimit);
  std::vector<std::byte> header(message[0].bytes().begin(),
                                message[0].bytes().end());
  header[25] = std::byte{3};  // the stack
  message[0] = rpc::Frame::Own(std::move(header));
  EXPECT_THROW(BatchMessage(std::move(message), maker.shape),
               rpc::MalformedMessage);
}

}  // namespace
}  // namespace replicant::replay
