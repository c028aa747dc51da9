#include "replay/checkpoint/checkpointer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/process.h"
#include "replay/checkpoint/checkpoint_file.h"
#include "replay/store/numbered_files.h"
#include "tests/replay/checkpoint/file_size_limit.h"
#include "tests/replay/checkpoint/shard_in_folder.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using replicant::testing::MessageOf;
using testing::Config;
using testing::Draw;
using ::testing::ElementsAre;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using testing::kShape;
using testing::ShardInFolder;
using testing::Steps;
using testing::WriteBytes;

TEST(CheckpointerTest, ARestoredShardDrawsWhatTheSavedOneWouldHave) {
  const TemporaryFolder folder;
  std::vector<SampledItem> expected;
  {
    ShardInFolder saved(folder.path());
    for (uint64_t i = 1; i <= 20; ++i) {
      ASSERT_EQ(saved.Insert(i), InsertResult::kInserted);
    }
    for (const SampledItem& item : Draw(saved.shard, 30)) {
      const PriorityUpdate update = {
          item.key, 0.1f * static_cast<float>(item.key.slot + 1)};
      saved.shard.UpdatePriorities(0, {&update, 1});
    }
    saved.checkpointer.Save();
    expected = Draw(saved.shard, 40);
  }
  ShardInFolder restored(folder.path());
  EXPECT_EQ(restored.checkpointer.restored().number, 1u);
  const std::vector<SampledItem> drawn = Draw(restored.shard, 40);
  for (size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_EQ(drawn[i].key, expected[i].key);
    EXPECT_EQ(drawn[i].probability, expected[i].probability);
    EXPECT_EQ(drawn[i].times_sampled, expected[i].times_sampled);
  }
}

// An item's age counts all items that were inserted after it, also those that
// were removed before the checkpoint.
TEST(CheckpointerTest, ARestoredShardDrawsByTheSameAges) {
  ShardConfig config = Config();
  config.tables[0].priority_fade = {.base = 0.97, .floor = 0.3};
  config.tables[0].max_times_sampled = 2;
  for (const bool has_journal : {false, true}) {
    const auto durability =
        has_journal ? Durability::kJournal : Durability::kCheckpoint;
    const TemporaryFolder folder;
    std::vector<SampledItem> expected;
    double mass = 0.0;
    {
      ShardInFolder saved(folder.path(), durability, config);
      for (uint64_t i = 1; i <= 30; ++i) {
        ASSERT_EQ(saved.Insert(i), InsertResult::kInserted);
      }
      Draw(saved.shard, 70);
      ASSERT_LT(saved.size(), 30);
      saved.checkpointer.Save();
      // only a journal has these
      for (uint64_t i = 31; has_journal && i <= 35; ++i) {
        ASSERT_EQ(saved.Insert(i), InsertResult::kInserted);
      }
      mass = saved.shard.Status().tables[0].mass;
      expected = Draw(saved.shard, 20);
    }
    ShardInFolder restored(folder.path(), durability, config);
    EXPECT_EQ(restored.shard.Status().tables[0].mass, mass);
    const std::vector<SampledItem> drawn = Draw(restored.shard, 20);
    for (size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_EQ(drawn[i].key.slot, expected[i].key.slot);
      EXPECT_EQ(drawn[i].probability, expected[i].probability);
    }
  }
}

// This shows a supervisor that a restore makes progress.
TEST(CheckpointerTest, CountsTheChunksThatItRestores) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    for (uint64_t i = 1; i <= 20; ++i) {
      ASSERT_EQ(saved.Insert(i), InsertResult::kInserted);
      if (i == 12) saved.checkpointer.Save();
    }
  }
  FakeClock clock;
  Shard shard(Config(), &clock);
  int num_chunks = 0;
  const Checkpointer restored({.folder = folder.path(),
                               .durability = Durability::kJournal,
                               .on_restored_chunk =
                                   [&] {
                                     ++num_chunks;
                                     return true;
                                   }},
                              &shard);
  EXPECT_EQ(num_chunks, 20);
}

// Would catch a replay that is killed since it hears of its end only after the
// restore, and a checkpoint that counts as damaged because of that.
TEST(CheckpointerTest, ARestoreThatIsStoppedChangesNoFile) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    for (uint64_t i = 1; i <= 20; ++i) {
      ASSERT_EQ(saved.Insert(i), InsertResult::kInserted);
      if (i == 12) saved.checkpointer.Save();
    }
  }
  // among the chunks of the checkpoint, and among those of the journal
  for (const int last : {5, 15}) {
    FakeClock clock;
    Shard shard(Config(), &clock);
    int num_chunks = 0;
    EXPECT_EQ(MessageOf<RestoreStopped>([&] {
                const Checkpointer restored(
                    {.folder = folder.path(),
                     .durability = Durability::kJournal,
                     .on_restored_chunk = [&] { return ++num_chunks < last; }},
                    &shard);
              }),
              folder.path().string() + ": the restore was stopped");
    EXPECT_EQ(num_chunks, last);
  }
  const ShardInFolder restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.checkpointer.restored().number, 1u);
  EXPECT_EQ(restored.checkpointer.restored().journal_chunks, 8);
  EXPECT_THAT(restored.checkpointer.restored().problems, ::testing::IsEmpty());
}

TEST(CheckpointerTest, AnOpenEpisodeGoesOnAfterARestart) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path());
    ASSERT_EQ(saved.shard.TryInsert(1, 1, Steps(1, 0, 3, false)),
              InsertResult::kInserted);
    saved.checkpointer.Save();
  }
  ShardInFolder restored(folder.path());
  EXPECT_EQ(restored.size(), 1);
  EXPECT_EQ(restored.shard.LastSequence(1), 1u);
  EXPECT_EQ(restored.shard.StepsOf(1), 3);
  EXPECT_EQ(restored.shard.TryInsert(1, 2, Steps(1, 3, 2, true)),
            InsertResult::kInserted);
  EXPECT_EQ(restored.size(), 5);
}

// Two steps, the second of which observes `number`; the episode goes on.
std::vector<std::byte> StepsWith(float number, uint64_t episode,
                                 int64_t first_step) {
  ChunkBuilder builder(kShape, episode, first_step);
  for (const float value : {0.5F, number}) {
    const float row[] = {value, 1.0F};
    builder.AddStep(std::as_bytes(std::span(row)),
                    std::as_bytes(std::span(row).last(1)), 1.0F, 1.0F);
  }
  return builder.Finish({});
}

// Would catch a run that one NaN has ended for good: the learner draws it again
// after every restart.
TEST(CheckpointerTest, ItemsWithANumberThatIsNotFiniteAreLeftOut) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const bool has_journal : {false, true}) {
    const TemporaryFolder folder;
    {
      ShardInFolder saved(folder.path(), has_journal ? Durability::kJournal
                                                     : Durability::kCheckpoint);
      // a closed episode of 2 items, whose numbers are fine
      EXPECT_EQ(saved.shard.TryInsert(1, 1, StepsWith(0.25F, 1, 0)),
                InsertResult::kInserted);
      EXPECT_EQ(saved.shard.TryInsert(1, 2, Steps(1, 2, 1, true)),
                InsertResult::kInserted);
      ASSERT_EQ(saved.size(), 3);
      // two items reach into the chunk with the NaN, two begin in it
      EXPECT_EQ(saved.shard.TryInsert(2, 1, StepsWith(0.5F, 2, 0)),
                InsertResult::kInserted);
      EXPECT_EQ(saved.shard.TryInsert(2, 2, StepsWith(kNaN, 2, 2)),
                InsertResult::kInserted);
      EXPECT_EQ(saved.shard.TryInsert(2, 3, StepsWith(0.5F, 2, 4)),
                InsertResult::kInserted);
      ASSERT_EQ(saved.size(), 3 + 4);
      if (!has_journal) saved.checkpointer.Save();
    }
    ShardConfig config = Config();
    config.has_float_rows = true;
    ShardInFolder restored(folder.path(), Durability::kCheckpoint, config);
    const RestoreReport& report = restored.checkpointer.restored();
    if (has_journal) {
      EXPECT_EQ(report.left_out_chunks, 1);
      EXPECT_EQ(restored.size(), 3);
    } else {
      EXPECT_EQ(report.left_out_items, 4);
      EXPECT_EQ(restored.size(), 3);
      EXPECT_THAT(report.problems,
                  ::testing::ElementsAre(
                      "4 items and 0 chunks of the journal are left out: "
                      "numbers of their steps are not finite"));
    }
    SampledBatch batch;
    EXPECT_EQ(restored.shard.TrySample(0, 20, "test", &batch), 20);
    for (const auto& chunk : batch.chunks) {
      EXPECT_TRUE(chunk->view.HasFiniteRows());
    }
    // from the journal the episode has a gap and is closed; in the checkpoint
    // its last chunks are whole, and it goes on; slots are free again
    EXPECT_EQ(restored.shard.TryInsert(2, 4, StepsWith(0.5F, 2, 6)),
              has_journal ? InsertResult::kDropped : InsertResult::kInserted);
    EXPECT_EQ(restored.shard.TryInsert(2, 5, Steps(3, 0, 3, true)),
              InsertResult::kInserted);
    EXPECT_EQ(restored.size(), has_journal ? 6 : 8);
  }
}

TEST(CheckpointerTest, SegmentsOfTheVersionBeforeAreRead) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
  }
  const auto path = SegmentPath(folder.path(), 1);
  std::string bytes = ReadFile(path);
  bytes[4] = 1;
  WriteBytes(path, bytes);
  EXPECT_EQ(ShardInFolder(folder.path(), Durability::kJournal).size(), 3);
  bytes[4] = 3;
  WriteBytes(path, bytes);
  EXPECT_THAT(ShardInFolder(folder.path(), Durability::kJournal)
                  .checkpointer.restored()
                  .problems,
              ElementsAre(path.string() + ": not segment 1 of version 1 to 2"));
}

// A checkpoint that cannot be restored must not push out one that can.
TEST(CheckpointerTest, OnlyVerifiedCheckpointsCountAsKept) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path());
    for (uint64_t id = 1; id <= 2; ++id) {
      ASSERT_EQ(saved.Insert(id), InsertResult::kInserted);
      saved.checkpointer.Save(saved.shard.TakeSnapshot(), id);
    }
    saved.checkpointer.Save();
  }
  const auto path = CheckpointPath(folder.path(), 2);
  std::string bad = ReadFile(path);
  bad.back() = static_cast<char>(bad.back() ^ 1);
  WriteBytes(path, bad);
  {
    ShardInFolder restored(folder.path());
    EXPECT_EQ(restored.checkpointer.restored().number, 3u);
    restored.checkpointer.Save(restored.shard.TakeSnapshot(), 3);
  }
  EXPECT_EQ(ListNumbered(folder.path(), "checkpoint", "ckpt"),
            (std::set<uint64_t>{1, 3, 4}));
  EXPECT_EQ(ListNumbered(folder.path(), "checkpoint", "damaged"),
            (std::set<uint64_t>{2}));
}

TEST(CheckpointerTest, AFolderInUseIsRefusedWithItsOwner) {
  const TemporaryFolder folder;
  const ShardInFolder first(folder.path());
  EXPECT_EQ(MessageOf<IoError>([&] { ShardInFolder(folder.path()); }),
            folder.path().string() + ": in use by process " + HostAndPid());
}

TEST(CheckpointerTest, UnfinishedFilesOfAKilledProcessGo) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "checkpoint-00000001.ckpt.tmp-4194304-0";
  WriteBytes(path, "half");
  const ShardInFolder service(folder.path());
  EXPECT_FALSE(std::filesystem::exists(path));
}

// A client's checkpoints have ids, and stay in addition to periodic ones.
TEST(CheckpointerTest, GoesBackToACheckpointByItsId) {
  const TemporaryFolder folder;
  const auto options = [&](uint64_t id) {
    return CheckpointOptions{.folder = folder.path(),
                             .durability = Durability::kJournal,
                             .segment_bytes = 2000,
                             .restore_id = id};
  };
  FakeClock clock;
  {
    ShardInFolder saved(folder.path(), Durability::kJournal);
    for (uint64_t i = 1; i <= 12; ++i) {
      ASSERT_EQ(saved.Insert(i, 1), InsertResult::kInserted);
      const uint64_t id = i == 2 ? 20 : i == 4 ? 40 : 0;
      saved.checkpointer.Save(saved.shard.TakeSnapshot(), id);
    }
  }
  {
    Shard shard(Config(), &clock);
    const Checkpointer checkpointer(options(20), &shard);
    EXPECT_EQ(checkpointer.restored().number, 2u);
    EXPECT_EQ(checkpointer.restored().id, 20u);
    // without the journal after it
    EXPECT_EQ(shard.LastSequence(1), 2u);
    EXPECT_EQ(checkpointer.last_number(), 13u);
  }
  {
    // it is the newest now, and continues with its own journal
    ShardInFolder service(folder.path(), Durability::kJournal);
    EXPECT_EQ(service.shard.LastSequence(1), 2u);
    ASSERT_EQ(service.Insert(3, 2), InsertResult::kInserted);
  }
  {
    const ShardInFolder service(folder.path(), Durability::kJournal);
    EXPECT_EQ(service.checkpointer.restored().number, 13u);
    EXPECT_EQ(service.shard.LastSequence(1), 3u);
    EXPECT_EQ(service.size(), 4);
  }
  {
    Shard shard(Config(), &clock);
    const Checkpointer checkpointer(options(40), &shard);
    EXPECT_EQ(shard.LastSequence(1), 4u);
  }
  Shard shard(Config(), &clock);
  try {
    const Checkpointer checkpointer(options(30), &shard);
    FAIL() << "no IoError";
  } catch (const IoError& e) {
    EXPECT_EQ(e.what(),
              fmt::format("{}: no whole checkpoint of id 30; there are ids: "
                          "20, 40",
                          folder.path().string()));
  }
}

// Attempts that a client has given up do not push out what it relies on.
TEST(CheckpointerTest, KeepsTheNewestOfEachId) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path());
    for (const uint64_t id : {1, 2, 3, 3, 3}) {
      ASSERT_EQ(saved.Insert(id), InsertResult::kInserted);
      saved.checkpointer.Save(saved.shard.TakeSnapshot(), id);
    }
  }
  EXPECT_EQ(ListNumbered(folder.path(), "checkpoint", "ckpt"),
            (std::set<uint64_t>{2, 5}));
  FakeClock clock;
  Shard shard(Config(), &clock);
  const Checkpointer checkpointer({.folder = folder.path(), .restore_id = 2},
                                  &shard);
  EXPECT_EQ(checkpointer.restored().number, 2u);
}

// Old segments go, so that the folder does not grow with what was evicted.
TEST(CheckpointerTest, TheFolderKeepsWhatItsCheckpointsNeed) {
  const TemporaryFolder folder;
  size_t most_segments = 0;
  {
    ShardInFolder service(folder.path());
    for (uint64_t i = 1; i <= 400; ++i) {
      ASSERT_EQ(service.Insert(i), InsertResult::kInserted);
      if (i % 10 == 0) service.checkpointer.Save();
      most_segments = std::max(
          most_segments, ListNumbered(folder.path(), "segment", "log").size());
    }
  }
  EXPECT_THAT(ListNumbered(folder.path(), "checkpoint", "ckpt"),
              ElementsAre(39u, 40u));
  // 17 episodes of some 180 bytes live, in segments of 2000
  EXPECT_LE(most_segments, 6u);
  EXPECT_EQ(ShardInFolder(folder.path()).size(), 50);
}

TEST(CheckpointerTest, AFullDiskIsAnErrorAndLeavesTheCheckpointBefore) {
  const TemporaryFolder folder;
  {
    ShardInFolder service(folder.path());
    ASSERT_EQ(service.Insert(1), InsertResult::kInserted);
    service.checkpointer.Save();
    for (const rlim_t bytes : {200, 250, 300, 340}) {
      ASSERT_EQ(service.Insert(bytes), InsertResult::kInserted);
      const FileSizeLimit limit(bytes);
      try {
        service.checkpointer.Save();
        FAIL() << "no IoError";
      } catch (const IoError& e) {
        EXPECT_THAT(e.what(), HasSubstr(folder.path().string()));
      }
    }
    EXPECT_EQ(ListNumbered(folder.path(), "checkpoint", "ckpt"),
              (std::set<uint64_t>{1}));
    // with room again it continues, and loses nothing
    service.checkpointer.Save();
  }
  const ShardInFolder restored(folder.path());
  EXPECT_EQ(restored.checkpointer.restored().number, 2u);
  EXPECT_EQ(restored.size(), 15);
}

TEST(CheckpointerTest, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  WriteBytes(folder.path() / "file", "x");
  try {
    const ShardInFolder service(folder.path() / "file" / "replay");
    FAIL() << "no IoError";
  } catch (const IoError& e) {
    EXPECT_THAT(e.what(), HasSubstr((folder.path() / "file").string()));
  }
}

// A file of version 2: its snapshot ends before the windows and periods of its
// one table.
TEST(CheckpointerTest, ReadsACheckpointFromBeforeThereWereWindows) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path());
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    saved.checkpointer.Save();
  }
  const CheckpointFile file = ReadCheckpointFile(folder.path(), 1);
  constexpr size_t kWindowBytes = 2 * (sizeof(uint32_t) + sizeof(int64_t));
  WriteCheckpointFile(
      folder.path(), file.head,
      file.snapshot().first(file.snapshot().size() - kWindowBytes));
  const std::filesystem::path path = CheckpointPath(folder.path(), 1);
  std::string bytes = ReadFile(path);
  const size_t head_bytes = 56 + 8 * file.head.segments.size();
  const auto set = [&bytes](size_t offset, uint32_t value) {
    std::memcpy(bytes.data() + offset, &value, sizeof(value));
  };
  set(/*version*/ 4, 2);
  set(/*head_crc*/ 44, 0);
  set(44, Crc32c(std::string_view(bytes).substr(0, head_bytes)));
  WriteBytes(path, bytes);

  const ShardInFolder restored(folder.path());
  EXPECT_EQ(restored.size(), 3);
  EXPECT_EQ(restored.checkpointer.restored().number, 1u);
}

TEST(CheckpointerTest, ItemsOfAnotherKindAreRefused) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path());
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    saved.checkpointer.Save();
  }
  const auto why = [&](const NStepConfig& items) {
    ShardConfig config = Config();
    config.tables[0].n_step = items;
    return replicant::testing::MessageOf<InvalidArgument>([&] {
      const ShardInFolder service(folder.path(), Durability::kCheckpoint,
                                  config);
    });
  };
  EXPECT_EQ(why({.n_step = 5}),
            "table 't': the checkpoint's items have n_step 2, discount 0.99 "
            "and stack 1, but the configuration says n_step 5, discount 0.99 "
            "and stack 1; hint: start afresh with another checkpoint_folder");
  EXPECT_EQ(why({.window = 8, .period = 4}),
            "table 't': the checkpoint's items have n_step 2, discount 0.99 "
            "and stack 1, but the configuration says window 8, period 4, "
            "n_step 1, discount 0.99 and stack 1; hint: start afresh with "
            "another checkpoint_folder");
}

TEST(CheckpointerTest, ASmallerTableKeepsTheNewestItems) {
  const TemporaryFolder folder;
  {
    ShardInFolder saved(folder.path());
    for (uint64_t i = 1; i <= 10; ++i) {
      ASSERT_EQ(saved.Insert(i, 1), InsertResult::kInserted);
    }
    saved.checkpointer.Save();
  }
  ShardConfig config = Config();
  config.tables[0].max_size = 4;
  ShardInFolder restored(folder.path(), Durability::kCheckpoint, config);
  EXPECT_EQ(restored.size(), 4);
  SampledBatch batch;
  EXPECT_EQ(restored.shard.TrySample(0, 50, "test", &batch), 50);
  for (const SampledItem& item : batch.items) {
    EXPECT_GE(batch.ChunkOf(item, 0).view.episode(), 7u);
  }
}

}  // namespace
}  // namespace replicant::replay
