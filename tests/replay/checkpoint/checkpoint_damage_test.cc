// Damaged files of a folder of checkpoints.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/error.h"
#include "base/fs.h"
#include "replay/checkpoint/checkpoint_file.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/store/numbered_files.h"
#include "tests/replay/checkpoint/shard_in_folder.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using replicant::testing::MessageOf;
using ::testing::AllOf;
using testing::Config;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::ShardInFolder;
using ::testing::StartsWith;
using testing::WriteBytes;

// A folder with two checkpoints of one item each, in one segment each, whose
// newest files a test damages.
struct Damage {
  TemporaryFolder folder;
  const std::filesystem::path newest_segment = SegmentPath(folder.path(), 2);
  const std::filesystem::path newest_checkpoint =
      CheckpointPath(folder.path(), 2);
  const std::filesystem::path aside =
      folder.path() / "checkpoint-00000002.damaged";
  std::string good_segment, good_checkpoint;

  Damage() {
    // two processes, so that the second checkpoint has its own segment
    for (uint64_t i = 1; i <= 2; ++i) {
      ShardInFolder saved(folder.path());
      EXPECT_EQ(saved.Insert(i, 1), InsertResult::kInserted);
      saved.checkpointer.Save();
    }
    good_segment = ReadFile(newest_segment);
    good_checkpoint = ReadFile(newest_checkpoint);
  }
  // Makes the newest checkpoint good again, and forgets that it was set aside.
  void Mend() const {
    std::filesystem::remove_all(aside);
    WriteBytes(newest_segment, good_segment);
    WriteBytes(newest_checkpoint, good_checkpoint);
  }
};

// The state that a new process restores from the folder.
void ExpectOlderCheckpoint(const Damage& damage, const std::string& place) {
  const ShardInFolder restored(damage.folder.path());
  const RestoreReport& report = restored.checkpointer.restored();
  ASSERT_EQ(report.number, 1u) << place;
  ASSERT_THAT(report.problems,
              ElementsAre(StartsWith(damage.folder.path().string()),
                          "checkpoint 2 and its segments are kept in " +
                              damage.aside.string()))
      << place;
  ASSERT_EQ(restored.size(), 1) << place;
  damage.Mend();
}

TEST(CheckpointDamageTest, AFileCutOffAtAnyByteGivesTheOlderCheckpoint) {
  const Damage damage;
  for (const auto& path : {damage.newest_segment, damage.newest_checkpoint}) {
    const std::string good = ReadFile(path);
    for (size_t size = 0; size < good.size(); ++size) {
      WriteBytes(path, good.substr(0, size));
      ExpectOlderCheckpoint(damage,
                            fmt::format("{} cut at {}", path.string(), size));
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_EQ(ShardInFolder(damage.folder.path()).checkpointer.restored().number,
            2u);
}

TEST(CheckpointDamageTest, AFlippedBitGivesTheOlderCheckpoint) {
  const Damage damage;
  for (const auto& path : {damage.newest_segment, damage.newest_checkpoint}) {
    const std::string good = ReadFile(path);
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      WriteBytes(path, bad);
      ExpectOlderCheckpoint(
          damage, fmt::format("{} bit {} of byte {}", path.string(), i % 8, i));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(CheckpointDamageTest, DamageIsReportedWithTheFileAndThePlace) {
  const Damage damage;
  const auto problem = [&] {
    return ShardInFolder(damage.folder.path())
        .checkpointer.restored()
        .problems.front();
  };
  WriteBytes(damage.newest_segment, damage.good_segment.substr(0, 40));
  EXPECT_EQ(problem(), damage.newest_segment.string() +
                           ": no whole record at byte 16 of 40");
  damage.Mend();
  std::string checkpoint = damage.good_checkpoint;
  checkpoint[60] = static_cast<char>(checkpoint[60] ^ 1);
  WriteBytes(damage.newest_checkpoint, checkpoint);
  EXPECT_EQ(problem(), damage.newest_checkpoint.string() +
                           ": the checksum does not match");
}

TEST(CheckpointDamageTest, DamageIsFoundWithoutARestore) {
  const TemporaryFolder folder;
  const auto find = [&](uint64_t id) { return FindDamage(folder.path(), id); };
  {
    ShardInFolder saved(folder.path());
    for (uint64_t id = 1; id <= 2; ++id) {
      EXPECT_EQ(saved.Insert(id, 1), InsertResult::kInserted);
      saved.checkpointer.Save(saved.shard.TakeSnapshot(), id);
    }
  }
  EXPECT_EQ(find(1), "");
  EXPECT_EQ(find(2), "");
  EXPECT_EQ(find(3), folder.path().string() + ": no checkpoint of id 3");
  // the second chunk of the segment
  const std::filesystem::path path = SegmentPath(folder.path(), 1);
  const std::string segment = ReadFile(path);
  std::string bad = segment;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  WriteBytes(path, bad);
  EXPECT_EQ(find(1), "");
  EXPECT_THAT(find(2), StartsWith(path.string() + ": no whole record at byte"));
  WriteBytes(path, segment);
  const std::filesystem::path newest = CheckpointPath(folder.path(), 2);
  std::string checkpoint = ReadFile(newest);
  checkpoint.back() = static_cast<char>(checkpoint.back() ^ 1);
  WriteBytes(newest, checkpoint);
  EXPECT_EQ(find(2), newest.string() + ": the checksum does not match");
}

TEST(CheckpointDamageTest, AfterDamageNewCheckpointsAreNumberedOn) {
  const Damage damage;
  WriteBytes(damage.newest_checkpoint, "x");
  {
    // once more, because the number belongs to a checkpoint that was set aside
    const ShardInFolder restored(damage.folder.path());
    ASSERT_EQ(restored.checkpointer.restored().number, 1u);
  }
  {
    ShardInFolder restored(damage.folder.path());
    EXPECT_EQ(restored.checkpointer.Save(), 3u);
  }
  EXPECT_EQ(ShardInFolder(damage.folder.path()).checkpointer.restored().number,
            3u);
}

// The names and bytes of all files of a folder.
std::map<std::string, std::string> Contents(
    const std::filesystem::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().filename() != "lock") {
      contents[entry.path().string()] = ReadFile(entry.path());
    }
  }
  return contents;
}

TEST(CheckpointDamageTest, ADamagedCheckpointAndItsSegmentsAreKept) {
  const Damage damage;
  std::string bad = damage.good_segment;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  WriteBytes(damage.newest_segment, bad);
  {
    ShardInFolder restored(damage.folder.path());
    for (uint64_t i = 3; i < 200; ++i) {
      ASSERT_EQ(restored.Insert(i), InsertResult::kInserted);
      if (i % 10 == 0) restored.checkpointer.Save();
    }
  }
  EXPECT_FALSE(std::filesystem::exists(damage.newest_segment));
  EXPECT_EQ(ReadFile(damage.aside / "checkpoint-00000002.ckpt"),
            damage.good_checkpoint);
  EXPECT_EQ(ReadFile(damage.aside / "segment-00000002.log"), bad);
}

TEST(CheckpointDamageTest,
     AFolderWithoutAWholeCheckpointIsRefusedAndUntouched) {
  const Damage damage;
  const auto first = SegmentPath(damage.folder.path(), 1);
  std::string bad = ReadFile(first);
  bad.back() = static_cast<char>(bad.back() ^ 1);
  // the second checkpoint has the first one's item, too
  WriteBytes(first, bad);
  const auto before = Contents(damage.folder.path());
  EXPECT_THAT(MessageOf<IoError>([&] { ShardInFolder(damage.folder.path()); }),
              AllOf(StartsWith(damage.folder.path().string() +
                               ": none of its 2 checkpoints can be restored: " +
                               first.string()),
                    EndsWith("hint: repair them, or start afresh with another "
                             "checkpoint_folder")));
  EXPECT_EQ(Contents(damage.folder.path()), before);
}

TEST(CheckpointDamageTest, StepsOfAnotherShapeAreRefusedAndUntouched) {
  const Damage damage;
  const auto before = Contents(damage.folder.path());
  for (int64_t StepShape::*size :
       {&StepShape::observation_bytes, &StepShape::action_bytes,
        &StepShape::frame_bytes}) {
    ShardConfig config = Config();
    config.shape.*size += 4;
    const StepShape& shape = config.shape;
    EXPECT_EQ(
        MessageOf<InvalidArgument>([&] {
          ShardInFolder(damage.folder.path(), Durability::kCheckpoint, config);
        }),
        fmt::format("{}: its steps have observation_bytes 8, action_bytes 4 "
                    "and frame_bytes 0, the configuration has "
                    "observation_bytes {}, action_bytes {} and frame_bytes {}; "
                    "hint: configure the sizes that the folder has, or start "
                    "afresh with another checkpoint_folder",
                    damage.folder.path().string(), shape.observation_bytes,
                    shape.action_bytes, shape.frame_bytes));
    EXPECT_EQ(Contents(damage.folder.path()), before);
  }
}

TEST(CheckpointDamageTest, ATableThatIsNotConfiguredIsRefusedAndUntouched) {
  const Damage damage;
  const auto before = Contents(damage.folder.path());
  ShardConfig config = Config();
  config.tables[0].name = "renamed";
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] {
        ShardInFolder(damage.folder.path(), Durability::kCheckpoint, config);
      }),
      "table 't' of the checkpoint is not configured; configured: renamed; "
      "hint: configure it, or start afresh with another checkpoint_folder");
  EXPECT_EQ(Contents(damage.folder.path()), before);
}

// Nobody is given another checkpoint than the one that was asked for.
TEST(CheckpointDamageTest, ADamagedCheckpointIsNotReplacedWhereItsIdIsWanted) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path());
    saved.checkpointer.Save(saved.shard.TakeSnapshot(), 7);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    saved.checkpointer.Save(saved.shard.TakeSnapshot(), 8);
  }
  const auto path = SegmentPath(folder.path(), 1);
  WriteBytes(path, ReadFile(path).substr(0, 40));
  FakeClock clock;
  Shard shard(Config(), &clock);
  try {
    const Checkpointer checkpointer({.folder = folder.path(), .restore_id = 8},
                                    &shard);
    FAIL() << "no IoError";
  } catch (const IoError& e) {
    EXPECT_EQ(e.what(), fmt::format("{}: no whole checkpoint of id 8; {}: no "
                                    "whole record at byte 16 of 40",
                                    folder.path().string(), path.string()));
  }
}

}  // namespace
}  // namespace replicant::replay
