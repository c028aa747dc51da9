#include "replay/checkpoint/checkpointer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <string>

#include "core/base/crc32c.h"
#include "core/base/error.h"
#include "core/base/fs.h"
#include "core/base/process.h"
#include "replay/checkpoint/checkpoint_file.h"
#include "replay/store/numbered_files.h"
#include "tests/replay/checkpoint/file_size_limit.h"
#include "tests/support/message_of.h"

namespace replicant::replay {
namespace {

using replicant::testing::MessageOf;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::FileSizeLimit;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr StepShape kShape = {.observation_bytes = 8, .action_bytes = 4};

ShardConfig Config() {
  ShardConfig config;
  config.shape = kShape;
  config.tables = {{.name = "t",
                    .max_size = 50,
                    .n_step = {.n_step = 2},
                    .rate_limiter = {.mode = RateLimiterMode::kMinSize,
                                     .min_size_to_sample = 1}}};
  return config;
}

// `num_steps` steps; ends the episode unless it is to go on.
std::vector<std::byte> Steps(uint64_t episode, int64_t first_step,
                             int64_t num_steps, bool ends) {
  StepGroupBuilder builder(kShape, episode, first_step);
  const std::vector<std::byte> row(8, static_cast<std::byte>(episode));
  for (int64_t i = 0; i < num_steps; ++i) {
    builder.AddStep(row, std::span(row).first(4), 1.0f, 1.0f);
  }
  if (ends) builder.AddLastObservation(row);
  return builder.Finish({});
}

// A shard and its folder, as one process has them.
struct Service {
  explicit Service(const std::filesystem::path& folder,
                   Durability durability = Durability::kCheckpoint,
                   const ShardConfig& config = Config())
      : shard(config, &clock),
        checkpointer(
            {.folder = folder, .durability = durability, .segment_bytes = 2000},
            &shard) {}
  InsertResult Insert(uint64_t sequence, int64_t num_steps = 3) {
    return shard.TryInsert(1, sequence, Steps(sequence, 0, num_steps, true));
  }
  int64_t size() const { return shard.Status().tables[0].size; }

  FakeClock clock;
  Shard shard;
  Checkpointer checkpointer;
};

std::vector<SampledItem> Draw(Shard& shard, int64_t count) {
  SampledBatch batch;
  EXPECT_EQ(shard.TrySample(0, count, "test", &batch), count);
  return batch.items;
}

TEST(CheckpointerTest, ARestoredShardDrawsWhatTheSavedOneWouldHave) {
  const TemporaryFolder folder;
  std::vector<SampledItem> expected;
  {
    Service saved(folder.path());
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
  Service restored(folder.path());
  EXPECT_EQ(restored.checkpointer.restored().number, 1u);
  const std::vector<SampledItem> drawn = Draw(restored.shard, 40);
  for (size_t i = 0; i < drawn.size(); ++i) {
    EXPECT_EQ(drawn[i].key, expected[i].key);
    EXPECT_EQ(drawn[i].probability, expected[i].probability);
    EXPECT_EQ(drawn[i].times_sampled, expected[i].times_sampled);
  }
}

// By this a supervisor sees that a restore goes on.
TEST(CheckpointerTest, CountsTheGroupsThatItRestores) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal);
    for (uint64_t i = 1; i <= 20; ++i) {
      ASSERT_EQ(saved.Insert(i), InsertResult::kInserted);
      if (i == 12) saved.checkpointer.Save();
    }
  }
  FakeClock clock;
  Shard shard(Config(), &clock);
  int num_groups = 0;
  const Checkpointer restored({.folder = folder.path(),
                               .durability = Durability::kJournal,
                               .on_restored_group = [&] { ++num_groups; }},
                              &shard);
  EXPECT_EQ(num_groups, 20);
}

TEST(CheckpointerTest, AnOpenEpisodeGoesOnAfterARestart) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path());
    ASSERT_EQ(saved.shard.TryInsert(1, 1, Steps(1, 0, 3, false)),
              InsertResult::kInserted);
    saved.checkpointer.Save();
  }
  Service restored(folder.path());
  EXPECT_EQ(restored.size(), 1);
  EXPECT_EQ(restored.shard.LastSequence(1), 1u);
  EXPECT_EQ(restored.shard.StepsOf(1), 3);
  EXPECT_EQ(restored.shard.TryInsert(1, 2, Steps(1, 3, 2, true)),
            InsertResult::kInserted);
  EXPECT_EQ(restored.size(), 5);
}

TEST(CheckpointerTest, WithoutAJournalTheStepsSinceTheCheckpointAreGone) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path());
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    saved.checkpointer.Save();
    ASSERT_EQ(saved.Insert(2), InsertResult::kInserted);
  }
  const Service restored(folder.path());
  EXPECT_EQ(restored.shard.LastSequence(1), 1u);
  EXPECT_EQ(restored.size(), 3);
}

TEST(CheckpointerTest, WithAJournalNothingIsGone) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal);
    for (uint64_t i = 1; i <= 30; ++i) {
      ASSERT_EQ(saved.Insert(i, 1), InsertResult::kInserted);
      if (i == 7 || i == 20) saved.checkpointer.Save();
    }
  }
  {
    const Service restored(folder.path(), Durability::kJournal);
    EXPECT_EQ(restored.checkpointer.restored().number, 2u);
    EXPECT_EQ(restored.checkpointer.restored().journal_groups, 10);
    EXPECT_EQ(restored.shard.LastSequence(1), 30u);
    EXPECT_EQ(restored.size(), 30);
  }
  // also from the older checkpoint, and again from what that process left
  std::filesystem::remove(CheckpointPath(folder.path(), 2));
  const Service restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.checkpointer.restored().number, 1u);
  EXPECT_EQ(restored.checkpointer.restored().journal_groups, 23);
  EXPECT_EQ(restored.size(), 30);
}

TEST(CheckpointerTest, AJournalAloneIsEnough) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
  }
  const Service restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.checkpointer.restored().number, std::nullopt);
  EXPECT_EQ(restored.size(), 3);
}

void WriteBytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
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

TEST(CheckpointerTest, WithAJournalItemsThatSamplesHadAdmittedAreInTheTable) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal, RatioConfig());
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
  Service restored(folder.path(), Durability::kJournal, RatioConfig());
  const TableStatus table = restored.shard.Status().tables[0];
  EXPECT_EQ(table.size, 200);
  EXPECT_EQ(table.samples, 1440);
  EXPECT_EQ(restored.shard.Resume(1), InsertResult::kInserted);
}

TEST(CheckpointerTest, AJournalForgetsAtMostABatchOfSamples) {
  const TemporaryFolder folder;
  constexpr int64_t kSamples = 5 * Shard::kSamplesPerJournalRecord / 2;
  {
    Service saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    saved.checkpointer.Save();
    for (int64_t i = 0; i < kSamples; i += 64) Draw(saved.shard, 64);
  }
  const Service restored(folder.path(), Durability::kJournal);
  EXPECT_GE(restored.shard.Status().tables[0].samples,
            kSamples - Shard::kSamplesPerJournalRecord);
}

// The counts of a journal may be older than the checkpoint before it.
TEST(CheckpointerTest, AJournalNeverTakesSamplesBack) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    Draw(saved.shard, 5);
    ASSERT_EQ(saved.Insert(2), InsertResult::kInserted);
    Draw(saved.shard, 5);
    saved.checkpointer.Save();
  }
  const Service restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.shard.Status().tables[0].samples, 10);
}

TEST(CheckpointerTest, SegmentsOfTheVersionBeforeAreRead) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
  }
  const auto path = SegmentPath(folder.path(), 1);
  std::string bytes = ReadFile(path);
  bytes[4] = 1;
  WriteBytes(path, bytes);
  EXPECT_EQ(Service(folder.path(), Durability::kJournal).size(), 3);
  bytes[4] = 3;
  WriteBytes(path, bytes);
  EXPECT_THAT(Service(folder.path(), Durability::kJournal)
                  .checkpointer.restored()
                  .problems,
              ElementsAre(path.string() + ": not segment 1 of version 1 to 2"));
}

// With other settings neither side makes up for the past.
TEST(CheckpointerTest, AJournalOfOtherLimiterSettingsStopsNobody) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal, RatioConfig());
    for (uint64_t i = 1; i <= 20; ++i) {
      static_cast<void>(saved.Insert(i, 10));
      Draw(saved.shard, 80);
    }
    ASSERT_EQ(saved.shard.Resume(1), InsertResult::kInserted);
  }
  ShardConfig config = RatioConfig();
  config.tables[0].rate_limiter.samples_per_insert = 1.0;
  const Service restored(folder.path(), Durability::kJournal, config);
  EXPECT_EQ(restored.size(), 200);
  EXPECT_GE(restored.shard.Status().tables[0].error, -80.0);
}

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
      Service saved(folder.path());
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
  const Service restored(damage.folder.path());
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

TEST(CheckpointerTest, AFileCutOffAtAnyByteGivesTheOlderCheckpoint) {
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
  EXPECT_EQ(Service(damage.folder.path()).checkpointer.restored().number, 2u);
}

TEST(CheckpointerTest, AFlippedBitGivesTheOlderCheckpoint) {
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

TEST(CheckpointerTest, DamageIsReportedWithTheFileAndThePlace) {
  const Damage damage;
  const auto problem = [&] {
    return Service(damage.folder.path())
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

TEST(CheckpointerTest, DamageIsFoundWithoutARestore) {
  const TemporaryFolder folder;
  const auto find = [&](uint64_t id) { return FindDamage(folder.path(), id); };
  {
    Service saved(folder.path());
    for (uint64_t id = 1; id <= 2; ++id) {
      EXPECT_EQ(saved.Insert(id, 1), InsertResult::kInserted);
      saved.checkpointer.Save(saved.shard.TakeSnapshot(), id);
    }
  }
  EXPECT_EQ(find(1), "");
  EXPECT_EQ(find(2), "");
  EXPECT_EQ(find(3), folder.path().string() + ": no checkpoint of id 3");
  // the second group of the segment
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

TEST(CheckpointerTest, AfterDamageNewCheckpointsAreNumberedOn) {
  const Damage damage;
  WriteBytes(damage.newest_checkpoint, "x");
  {
    // once more, as the number is that of a checkpoint that was set aside
    const Service restored(damage.folder.path());
    ASSERT_EQ(restored.checkpointer.restored().number, 1u);
  }
  {
    Service restored(damage.folder.path());
    EXPECT_EQ(restored.checkpointer.Save(), 3u);
  }
  EXPECT_EQ(Service(damage.folder.path()).checkpointer.restored().number, 3u);
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

TEST(CheckpointerTest, ADamagedCheckpointAndItsSegmentsAreKept) {
  const Damage damage;
  std::string bad = damage.good_segment;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  WriteBytes(damage.newest_segment, bad);
  {
    Service restored(damage.folder.path());
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

TEST(CheckpointerTest, AFolderWithoutAWholeCheckpointIsRefusedAndUntouched) {
  const Damage damage;
  const auto first = SegmentPath(damage.folder.path(), 1);
  std::string bad = ReadFile(first);
  bad.back() = static_cast<char>(bad.back() ^ 1);
  // the second checkpoint has the first one's item, too
  WriteBytes(first, bad);
  const auto before = Contents(damage.folder.path());
  EXPECT_THAT(MessageOf<IoError>([&] { Service(damage.folder.path()); }),
              AllOf(StartsWith(damage.folder.path().string() +
                               ": none of its 2 checkpoints can be restored: " +
                               first.string()),
                    EndsWith("hint: repair them, or start afresh with another "
                             "checkpoint_folder")));
  EXPECT_EQ(Contents(damage.folder.path()), before);
}

TEST(CheckpointerTest, StepsOfAnotherShapeAreRefusedAndUntouched) {
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
          Service(damage.folder.path(), Durability::kCheckpoint, config);
        }),
        fmt::format("{}: its steps have observation_bytes 8, action_bytes 4 "
                    "and frame_bytes 0, the configuration observation_bytes "
                    "{}, action_bytes {} and frame_bytes {}; hint: configure "
                    "the sizes of the folder, or start afresh with another "
                    "checkpoint_folder",
                    damage.folder.path().string(), shape.observation_bytes,
                    shape.action_bytes, shape.frame_bytes));
    EXPECT_EQ(Contents(damage.folder.path()), before);
  }
}

TEST(CheckpointerTest, ATableThatIsNotConfiguredIsRefusedAndUntouched) {
  const Damage damage;
  const auto before = Contents(damage.folder.path());
  ShardConfig config = Config();
  config.tables[0].name = "renamed";
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              Service(damage.folder.path(), Durability::kCheckpoint, config);
            }),
            "table 't' of the checkpoint is not configured; there are: "
            "renamed; hint: configure it, or start afresh with another "
            "checkpoint_folder");
  EXPECT_EQ(Contents(damage.folder.path()), before);
}

// What cannot be restored must not push out what can.
TEST(CheckpointerTest, OnlyVerifiedCheckpointsCountAsKept) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path());
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
    Service restored(folder.path());
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
  const Service first(folder.path());
  EXPECT_EQ(MessageOf<IoError>([&] { Service(folder.path()); }),
            folder.path().string() + ": in use by process " + HostAndPid());
}

TEST(CheckpointerTest, AJournalThatIsTurnedOffIsTakenOver) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
  }
  for (int start = 0; start < 2; ++start) {
    const Service restored(folder.path(), Durability::kCheckpoint);
    EXPECT_EQ(restored.size(), 3);
  }
}

TEST(CheckpointerTest, UnfinishedFilesOfAKilledProcessGo) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "checkpoint-00000001.ckpt.tmp-4194304-0";
  WriteBytes(path, "half");
  const Service service(folder.path());
  EXPECT_FALSE(std::filesystem::exists(path));
}

// A client's checkpoints have ids, and stay beside those taken on time.
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
    Service saved(folder.path(), Durability::kJournal);
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
    // it is the newest now, and goes on with a journal of its own
    Service service(folder.path(), Durability::kJournal);
    EXPECT_EQ(service.shard.LastSequence(1), 2u);
    ASSERT_EQ(service.Insert(3, 2), InsertResult::kInserted);
  }
  {
    const Service service(folder.path(), Durability::kJournal);
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
    Service saved(folder.path());
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

// Nobody is given another checkpoint than the one that was asked for.
TEST(CheckpointerTest, ADamagedCheckpointIsNotReplacedWhereItsIdIsWanted) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path());
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

TEST(CheckpointerTest, AJournalThatEndsInATornRecordGivesTheGroupsBefore) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path(), Durability::kJournal);
    ASSERT_EQ(saved.Insert(1, 1), InsertResult::kInserted);
    ASSERT_EQ(saved.Insert(2, 1), InsertResult::kInserted);
  }
  const auto path = SegmentPath(folder.path(), 1);
  const std::string good = ReadFile(path);
  WriteBytes(path, good.substr(0, good.size() - 1));
  const Service restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.shard.LastSequence(1), 1u);
  EXPECT_THAT(restored.checkpointer.restored().problems,
              ElementsAre(HasSubstr("bytes are no whole record")));
}

// Old segments go, so that the folder does not grow with what was evicted.
TEST(CheckpointerTest, TheFolderKeepsWhatItsCheckpointsNeed) {
  const TemporaryFolder folder;
  size_t most_segments = 0;
  {
    Service service(folder.path());
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
  EXPECT_EQ(Service(folder.path()).size(), 50);
}

TEST(CheckpointerTest, AFullDiskIsAnErrorAndLeavesTheCheckpointBefore) {
  const TemporaryFolder folder;
  {
    Service service(folder.path());
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
    // with room again it goes on, and loses nothing
    service.checkpointer.Save();
  }
  const Service restored(folder.path());
  EXPECT_EQ(restored.checkpointer.restored().number, 2u);
  EXPECT_EQ(restored.size(), 15);
}

TEST(CheckpointerTest, AJournalThatCannotBeWrittenRefusesTheInsert) {
  const TemporaryFolder folder;
  {
    Service service(folder.path(), Durability::kJournal);
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
  const Service restored(folder.path(), Durability::kJournal);
  EXPECT_EQ(restored.shard.LastSequence(1), 2u);
  EXPECT_THAT(restored.checkpointer.restored().problems, IsEmpty());
}

TEST(CheckpointerTest, AFolderThatCannotBeMadeIsNamed) {
  const TemporaryFolder folder;
  WriteBytes(folder.path() / "file", "x");
  try {
    const Service service(folder.path() / "file" / "replay");
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
    Service saved(folder.path());
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

  const Service restored(folder.path());
  EXPECT_EQ(restored.size(), 3);
  EXPECT_EQ(restored.checkpointer.restored().number, 1u);
}

TEST(CheckpointerTest, ItemsOfAnotherKindAreRefused) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path());
    ASSERT_EQ(saved.Insert(1), InsertResult::kInserted);
    saved.checkpointer.Save();
  }
  const auto why = [&](const NStepConfig& items) {
    ShardConfig config = Config();
    config.tables[0].n_step = items;
    return replicant::testing::MessageOf<InvalidArgument>([&] {
      const Service service(folder.path(), Durability::kCheckpoint, config);
    });
  };
  EXPECT_EQ(why({.n_step = 5}),
            "table 't': the checkpoint's items have n_step 2, discount 0.99 "
            "and stack 1, the configuration's n_step 5, discount 0.99 and "
            "stack 1; hint: start afresh with another checkpoint_folder");
  EXPECT_EQ(
      why({.window = 8, .period = 4}),
      "table 't': the checkpoint's items have n_step 2, discount 0.99 "
      "and stack 1, the configuration's window 8, period 4, n_step 1, discount "
      "0.99 and stack 1; hint: start afresh with another checkpoint_folder");
}

TEST(CheckpointerTest, ASmallerTableKeepsTheNewestItems) {
  const TemporaryFolder folder;
  {
    Service saved(folder.path());
    for (uint64_t i = 1; i <= 10; ++i) {
      ASSERT_EQ(saved.Insert(i, 1), InsertResult::kInserted);
    }
    saved.checkpointer.Save();
  }
  ShardConfig config = Config();
  config.tables[0].max_size = 4;
  Service restored(folder.path(), Durability::kCheckpoint, config);
  EXPECT_EQ(restored.size(), 4);
  SampledBatch batch;
  EXPECT_EQ(restored.shard.TrySample(0, 50, "test", &batch), 50);
  for (const SampledItem& item : batch.items) {
    EXPECT_GE(batch.GroupOf(item, 0).view.episode(), 7u);
  }
}

}  // namespace
}  // namespace replicant::replay
