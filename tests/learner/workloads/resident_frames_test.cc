#include "learner/workloads/agent/resident_frames.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/kernels/backend.h"
#include "tests/learner/workloads/resident_training.h"

namespace replicant::learner {
namespace {

// A batch of four frames of two bytes; a table of six and the spare ones.
class ResidentFramesTest : public ::testing::Test {
 protected:
  static std::vector<std::byte> Frame(int value) {
    return {static_cast<std::byte>(value), static_cast<std::byte>(value + 100)};
  }
  // Asks for the frames of these numbers, whose values are the numbers; below
  // 0: a frame that is not kept, of this value.
  std::vector<int32_t> Batch(const std::vector<int>& numbers) {
    frames_.BeginBatch();
    std::vector<int32_t> slots;
    for (const int number : numbers) {
      const auto frame = Frame(number);
      slots.push_back(frames_.SlotOf(static_cast<uint64_t>(std::max(0, number)),
                                     frame.data()));
    }
    return slots;
  }
  // A step with the batch. Returns whether it finds the frames.
  bool Run(const std::vector<int>& numbers) {
    const std::vector<int32_t> slots = Batch(numbers);
    frames_.Update(*stream_);
    for (size_t i = 0; i < slots.size(); ++i) {
      const std::byte* const at = frames_.data() + 2 * slots[i];
      if (!std::ranges::equal(std::span(at, 2), Frame(numbers[i]))) {
        return false;
      }
    }
    return true;
  }

  const std::unique_ptr<kernels::Backend> backend_ =
      kernels::MakeBackend("reference");
  const std::unique_ptr<kernels::Stream> stream_ = backend_->CreateStream();
  ResidentFrames frames_{
      *backend_, {.frame_bytes = 2, .max_bytes = 13, .frames_per_batch = 4}};
};

TEST_F(ResidentFramesTest, AFrameIsSentOnce) {
  EXPECT_EQ(frames_.type().shape, Shape({10, 2}));
  EXPECT_TRUE(Run({1, 2, 1, 3}));
  EXPECT_EQ(frames_.num_sent(), 3);
  EXPECT_TRUE(Run({3, 4, 2, 1}));
  EXPECT_EQ(frames_.num_sent(), 4);
  EXPECT_TRUE(Run({}));
  EXPECT_EQ(frames_.num_sent(), 4);
}

TEST_F(ResidentFramesTest, TheOldestMakeRoom) {
  EXPECT_TRUE(Run({1, 2, 3, 4}));
  EXPECT_TRUE(Run({5, 6, 7, 8}));  // in the place of 1 and 2
  EXPECT_EQ(frames_.num_sent(), 8);
  EXPECT_TRUE(Run({3, 8, 5, 6}));
  EXPECT_EQ(frames_.num_sent(), 8);
  EXPECT_TRUE(Run({1, 2}));  // in the place of 3 and 4
  EXPECT_EQ(frames_.num_sent(), 10);
  EXPECT_TRUE(Run({3, 7, 8}));
  EXPECT_EQ(frames_.num_sent(), 11);
}

// The slots that a batch uses are not taken for its other frames.
TEST_F(ResidentFramesTest, ABatchKeepsItsOwn) {
  EXPECT_TRUE(Run({1, 2, 3, 4}));
  EXPECT_TRUE(Run({5, 6}));
  EXPECT_TRUE(Run({1, 2, 7, 8}));  // in the place of 3 and 4
  EXPECT_EQ(frames_.num_sent(), 8);
  EXPECT_TRUE(Run({5, 6, 1, 2}));
  EXPECT_EQ(frames_.num_sent(), 8);
}

TEST_F(ResidentFramesTest, FramesThatAreNotKeptAreSentEachTime) {
  EXPECT_TRUE(Run({-1, 1, -2, 2}));
  EXPECT_EQ(frames_.num_sent(), 4);
  EXPECT_TRUE(Run({-2, 2, 1, -2}));
  EXPECT_EQ(frames_.num_sent(), 6);
  EXPECT_TRUE(Run({-1, -2, -3, -4}));
  EXPECT_TRUE(Run({1, 2}));
  EXPECT_EQ(frames_.num_sent(), 10);
}

TEST_F(ResidentFramesTest, ATableMayHaveNoRoomForAFrameThatStays) {
  ResidentFrames frames(
      *backend_, {.frame_bytes = 2, .max_bytes = 1, .frames_per_batch = 2});
  for (int i = 0; i < 3; ++i) {
    frames.BeginBatch();
    const auto frame = Frame(i);
    const int32_t slot = frames.SlotOf(1, frame.data());
    frames.Update(*stream_);
    EXPECT_TRUE(
        std::ranges::equal(std::span(frames.data() + 2 * slot, 2), frame));
  }
  EXPECT_EQ(frames.num_sent(), 3);
}

// such as one that failed half way
TEST_F(ResidentFramesTest, ABatchThatNoStepTookIsForgotten) {
  EXPECT_TRUE(Run({1}));
  Batch({1, 2, 3, -1});
  EXPECT_TRUE(Run({3, 1, 4}));
  EXPECT_EQ(frames_.num_sent(), 3);
  EXPECT_TRUE(Run({2, 3, 4, 1}));
  EXPECT_EQ(frames_.num_sent(), 4);
}

TEST(ResidentTrainingTest, ATableOfFramesChangesNoBit) {
  for (const auto& [name, c] : StoredCases()) {
    SCOPED_TRACE(name);
    CheckResidentIsTheSame(c, NumDraws(100), {.backend = "cpu", .threads = 2});
  }
}

// The reference gathers by other loops.
TEST(ResidentTrainingTest, TheReferenceDoesTheSame) {
  for (const int64_t window : {0, 4}) {
    CheckResidentIsTheSame({.window = window}, 4, {.backend = "reference"});
  }
}

TEST(ResidentTrainingTest, AFrameIsSentAboutOnce) {
  const StoredRun run =
      TrainStored({}, 100, /*is_resident=*/true, {.backend = "cpu"});
  // 33 episodes of 3 to 13 steps, and some frames before they are kept
  EXPECT_LT(run.num_sent_frames, 1200);
  EXPECT_GT(run.num_drawn_frames, 3000);
}

// Two batches make an update: two plans read one table.
TEST(ResidentTrainingTest, PlansMayShareATable) {
  CheckResidentIsTheSame({.resident_frames = 90}, 20,
                         {.backend = "cpu", .accumulation_steps = 2});
}

}  // namespace
}  // namespace replicant::learner
