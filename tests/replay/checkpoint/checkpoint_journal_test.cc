// The state that a journal keeps in addition to checkpoints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "replay/checkpoint/checkpoint_file.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/store/numbered_files.h"
#include "tests/replay/checkpoint/file_size_limit.h"
#include "tests/replay/checkpoint/shard_in_folder.h"

namespace replicant::replay {
namespace {

using testing::Config;
using testing::Draw;
using ::testing::ElementsAre;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::ShardInFolder;
using testing::WriteBytes;

TEST(CheckpointJournalTest, WithoutAJournalTheStepsSinceTheCheckpointAreGone) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path());
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    saved.checkpointer.Save();
    ASSERT_EQ(saved.Insert(2), InsertResult::kInserted);
  }
  const ShardInFolder restored(folder.path());
  EXPECT_EQ(restored.shard.LastSequence(1), 1u);
  EXPECT_EQ(restored.size(), 3);
}

TEST(CheckpointJournalTest, WithAJournalNothingIsGone) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    for (uint64_t i = 1; i <= 30; ++i) {
      ASSERT_EQ(saved.Insert(i, 1), InsertResult::kInserted);
      if (i == 7 || i == 20) saved.checkpointer.Save();
    }
  }
  {
    const ShardInFolder restored(folder.path(), Durability::kJournal);
    EXPECT_EQ(restored.checkpointer.restored().number, 2u);
    EXPECT_EQ(restored.checkpointer.restored().journal_chunks, 10);
    EXPECT_EQ(restored.shard.LastSequence(1), 30u);
    EXPECT_EQ(restored.size(), 30);
  }
  // also from the older checkpoint, and again from what that process left
  std::filesystem::remove(CheckpointPath(folder.path(), 2));
  const ShardInFolder restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.checkpointer.restored().number, 1u);
  EXPECT_EQ(restored.checkpointer.restored().journal_chunks, 23);
  EXPECT_EQ(restored.size(), 30);
}

TEST(CheckpointJournalTest, AJournalAloneIsEnough) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
  }
  const ShardInFolder restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.checkpointer.restored().number, std::nullopt);
  EXPECT_EQ(restored.size(), 3);
}

// One table whose samples and inserts wait for each other: ten items, then
// eight samples per insert.
ShardConfig RatioConfig() {
  ShardConfig config = Config();
  config.tables[0].max_size = 1000;
  config.tables[0].rate_limiter = {.samples_per_insert = 8.0,
                                   .min_size_to_sample = 10,
                                   .error_buffer = 80.0};
  return config;
}

TEST(CheckpointJournalTest,
     WithAJournalItemsThatSamplesHadAdmittedAreInTheTable) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal, RatioConfig());
    for (uint64_t i = 1; i <= 20; ++i) {
      ASSERT_EQ(saved.Insert(i, 10),
                i <= 2 ? InsertResult::kInserted : InsertResult::kWait);
      if (i == 4) saved.checkpointer.Save();
      if (i > 4) Draw(saved.shard, 80);
    }
    Draw(saved.shard, 80);
    ASSERT_EQ(saved.shard.Resume(1), InsertResult::kWait);
    Draw(saved.shard, 80);
    ASSERT_EQ(saved.shard.Resume(1), InsertResult::kInserted);
    ASSERT_EQ(saved.size(), 200);
  }
  ShardInFolder restored(folder.path(), Durability::kJournal, RatioConfig());
  const TableStatus table = restored.shard.Status().tables[0];
  EXPECT_EQ(table.size, 200);
  EXPECT_EQ(table.samples, 1440);
  EXPECT_EQ(restored.shard.Resume(1), InsertResult::kInserted);
}

TEST(CheckpointJournalTest, AJournalForgetsAtMostABatchOfSamples) {
  const TemporaryFolder folder;
  constexpr int64_t kSamples = 5 * Shard::kSamplesPerJournalRecord / 2;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    saved.checkpointer.Save();
    for (int64_t i = 0; i < kSamples; i += 64) Draw(saved.shard, 64);
  }
  const ShardInFolder restored(folder.path(), Durability::kJournal);
  EXPECT_GE(restored.shard.Status().tables[0].samples,
            kSamples - Shard::kSamplesPerJournalRecord);
}

// The counts of a journal may be older than the checkpoint before it.
TEST(CheckpointJournalTest, AJournalNeverTakesSamplesBack) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    Draw(saved.shard, 5);
    ASSERT_EQ(saved.Insert(2), InsertResult::kInserted);
    Draw(saved.shard, 5);
    saved.checkpointer.Save();
  }
  const ShardInFolder restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.shard.Status().tables[0].samples, 10);
}

// With other settings neither side makes up for the past.
TEST(CheckpointJournalTest, AJournalOfOtherLimiterSettingsStopsNobody) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal, RatioConfig());
    for (uint64_t i = 1; i <= 20; ++i) {
      static_cast<void>(saved.Insert(i, 10));
      Draw(saved.shard, 80);
    }
    ASSERT_EQ(saved.shard.Resume(1), InsertResult::kInserted);
  }
  ShardConfig config = RatioConfig();
  config.tables[0].rate_limiter.samples_per_insert = 1.0;
  const ShardInFolder restored(folder.path(), Durability::kJournal, config);
  EXPECT_EQ(restored.size(), 200);
  EXPECT_GE(restored.shard.Status().tables[0].error, -80.0);
}

TEST(CheckpointJournalTest, AJournalThatIsTurnedOffIsTakenOver) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
  }
  for (int start = 0; start < 2; ++start) {
    const ShardInFolder restored(folder.path(), Durability::kCheckpoint);
    EXPECT_EQ(restored.size(), 3);
  }
}

TEST(CheckpointJournalTest, AJournalThatEndsInATornRecordGivesTheChunksBefore) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1, 1), InsertResult::kInserted);
    ASSERT_EQ(saved.Insert(2, 1), InsertResult::kInserted);
  }
  const auto path = SegmentPath(folder.path(), 1);
  const std::string good = ReadFile(path);
  WriteBytes(path, good.substr(0, good.size() - 1));
  const ShardInFolder restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.shard.LastSequence(1), 1u);
  EXPECT_THAT(restored.checkpointer.restored().problems,
              ElementsAre(HasSubstr("bytes are not a whole record")));
}

TEST(CheckpointJournalTest, AJournalThatCannotBeWrittenRefusesTheInsert) {
  const TemporaryFolder folder;
  {
    ShardInFolder service(folder.path(), Durability::kJournal);
    ASSERT_EQ(service.Insert(1), InsertResult::kInserted);
    {
      const FileSizeLimit limit(200);
      EXPECT_THROW((void)service.Insert(2), IoError);
      EXPECT_EQ(service.shard.LastSequence(1), 1u);
      EXPECT_EQ(service.size(), 3);
    }
    // sent again, once there is room
    EXPECT_EQ(service.Insert(2), InsertResult::kInserted);
  }
  const ShardInFolder restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.shard.LastSequence(1), 2u);
  EXPECT_THAT(restored.checkpointer.restored().problems, IsEmpty());
}

}  // namespace
}  // namespace replicant::replay
