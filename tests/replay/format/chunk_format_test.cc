#include "replay/format/chunk_format.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "base/error.h"
#include "base/rng.h"
#include "replay/format/frame_codec.h"

namespace replicant::replay {
namespace {

using Bytes = std::vector<std::byte>;

constexpr StepShape kState = {.observation_bytes = 3, .action_bytes = 2};

Bytes Row(size_t size, int value) {
  return Bytes(size, static_cast<std::byte>(value));
}

Bytes TwoStepsAndTheEnd() {
  ChunkBuilder builder(kState, /*episode=*/9, /*first_step=*/4);
  builder.AddStep(Row(3, 1), Row(2, 11), 0.5f, 1.0f, 2.0f);
  builder.AddStep(Row(3, 2), Row(2, 12), -1.5f, 0.0f, 3.0f);
  builder.AddLastObservation(Row(3, 3));
  return builder.Finish({});
}

TEST(ChunkTest, IsReadBackAsItWasWritten) {
  const Bytes block = TwoStepsAndTheEnd();
  const ChunkView chunk(block, kState);
  EXPECT_EQ(chunk.episode(), 9u);
  EXPECT_EQ(chunk.first_step(), 4);
  EXPECT_EQ(chunk.num_steps(), 2);
  EXPECT_EQ(chunk.num_observations(), 3);
  EXPECT_EQ(chunk.end_observation(), 7);
  EXPECT_TRUE(chunk.ends_episode());
  EXPECT_EQ(chunk.reward(1), -1.5f);
  EXPECT_EQ(chunk.discount(1), 0.0f);
  EXPECT_EQ(chunk.priority(0), 2.0f);
  for (int i = 0; i < 3; ++i) {
    const auto row = chunk.Observation(i);
    EXPECT_EQ(Bytes(row.begin(), row.end()), Row(3, i + 1));
  }
  const auto action = chunk.Action(1);
  EXPECT_EQ(Bytes(action.begin(), action.end()), Row(2, 12));
  EXPECT_TRUE(chunk.frames().empty());
}

TEST(ChunkTest, HoldsOneFramePerObservation) {
  const StepShape shape = {.action_bytes = 2, .frame_bytes = 50};
  FrameBlockEncoder encoder(FrameCodec::kLz4, 50, 2);
  encoder.Add(Row(50, 1));
  encoder.Add(Row(50, 2));
  const Bytes frames = encoder.Finish();
  ChunkBuilder builder(shape, 1, 0);
  builder.AddStep({}, Row(2, 0), 0.0f, 1.0f);
  builder.AddLastObservation({});
  const Bytes block = builder.Finish(frames);
  const ChunkView chunk(block, shape);
  EXPECT_EQ(Bytes(chunk.frames().begin(), chunk.frames().end()), frames);
}

std::string MessageOf(const Bytes& block, const StepShape& shape = kState) {
  try {
    const ChunkView chunk(block, shape);
  } catch (const IoError& e) {
    return e.what();
  }
  return "is sound";
}

template <typename T>
Bytes With(Bytes block, size_t offset, T value) {
  std::memcpy(block.data() + offset, &value, sizeof(value));
  return block;
}

TEST(ChunkTest, ADamagedChunkIsNamed) {
  const Bytes good = TwoStepsAndTheEnd();
  ASSERT_EQ(MessageOf(good), "is sound");
  EXPECT_EQ(MessageOf(With(good, 0, 'x')),
            "chunk: its 69 bytes do not begin with the magic 'RSG1' and a "
            "header of 32 bytes");
  EXPECT_EQ(MessageOf(With(good, 6, uint16_t{8})),
            "chunk: flags 8, 2 steps and first step 4 are not possible");
  EXPECT_EQ(MessageOf(good, {.observation_bytes = 4, .action_bytes = 2}),
            "chunk: observations of 3 bytes and actions of 2, expected 4 and "
            "2");
  EXPECT_EQ(MessageOf(Bytes(good.begin(), good.end() - 1)),
            "chunk: has 68 bytes, but the header says 69");
  EXPECT_EQ(MessageOf(With(good, 32, std::nanf(""))),
            "chunk: reward nan of step 4 is not finite");
  EXPECT_EQ(MessageOf(With(good, 44, 1.5f)),
            "chunk: discount 1.5 of step 5 is outside [0, 1]");
  EXPECT_EQ(MessageOf(With(good, 48, -1.0f)),
            "chunk: priority -1 of step 4 is not finite and >= 0");
}

TEST(ChunkTest, FramesThatDoNotFitTheObservationsAreNamed) {
  const StepShape shape = {.frame_bytes = 50};
  FrameBlockEncoder encoder(FrameCodec::kNone, 50, 1);
  encoder.Add(Row(50, 1));
  ChunkBuilder builder(shape, 1, 0);
  builder.AddStep({}, {}, 0.0f, 1.0f);
  builder.AddLastObservation({});
  EXPECT_EQ(MessageOf(builder.Finish(encoder.Finish()), shape),
            "chunk: 1 frames of 50 bytes, expected 2 of 50");
  EXPECT_EQ(MessageOf(builder.Finish({}), shape),
            "frame block: its 0 bytes do not begin with the magic 'RFG1' and a "
            "header of 16 bytes");
}

TEST(ChunkTest, DamageNeverCrashes) {
  RandomStream random(1, "damage");
  const Bytes good = TwoStepsAndTheEnd();
  for (int i = 0; i < 5000; ++i) {
    Bytes bad = good;
    bad[static_cast<size_t>(random.UniformInt(69))] =
        static_cast<std::byte>(random());
    bad.resize(static_cast<size_t>(random.UniformInt(70)));
    MessageOf(bad);
  }
}

TEST(ChunkTest, TheBuilderRefusesWhatDoesNotFit) {
  const auto message = [](auto function) -> std::string {
    try {
      function();
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "no InvalidArgument";
  };
  ChunkBuilder builder(kState, 1, 0);
  EXPECT_EQ(message([&] { builder.Finish({}); }),
            "ChunkBuilder: a chunk without steps");
  EXPECT_EQ(message([&] { builder.AddStep(Row(4, 0), Row(2, 0), 0, 1); }),
            "ChunkBuilder: an observation has 4 bytes, expected 3");
  const auto message_of = [&](float reward, float discount, float priority) {
    return message([&] {
      builder.AddStep(Row(3, 0), Row(2, 0), reward, discount, priority);
    });
  };
  EXPECT_EQ(message_of(std::nanf(""), 1, 1),
            "ChunkBuilder: reward nan of step 0 is not finite");
  EXPECT_EQ(message_of(0, 1.5f, 1),
            "ChunkBuilder: discount 1.5 of step 0 is outside [0, 1]");
  EXPECT_EQ(message_of(0, 1, -1),
            "ChunkBuilder: priority -1 of step 0 is not finite and >= 0");
  EXPECT_EQ(builder.num_steps(), 0);
  builder.AddStep(Row(3, 0), Row(2, 0), 0, 1);
  EXPECT_EQ(message([&] { builder.AddStep(Row(3, 0), Row(2, 0), 0, 1, 1.0f); }),
            "ChunkBuilder: some steps have a priority and others do not");
  builder.AddLastObservation(Row(3, 0));
  EXPECT_EQ(message([&] { builder.AddStep(Row(3, 0), Row(2, 0), 0, 1); }),
            "ChunkBuilder: no step fits after 1 steps and the last "
            "observation");
  EXPECT_EQ(message([&] { builder.AddLastObservation(Row(3, 0)); }),
            "ChunkBuilder: a second last observation");
}

TEST(ChunkTest, FiniteNumbersThatAreNotNegativeArePriorities) {
  EXPECT_TRUE(IsPriority(0.0));
  EXPECT_TRUE(IsPriority(1e300));
  EXPECT_FALSE(IsPriority(-1e-9));
  EXPECT_FALSE(IsPriority(std::numeric_limits<double>::infinity()));
  EXPECT_FALSE(IsPriority(std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace
}  // namespace replicant::replay
