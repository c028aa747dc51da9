// The program `replay` on disks that are full, read-only or damaged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/fs.h"
#include "replay/checkpoint/checkpoint_file.h"
#include "replay/checkpoint/checkpointer.h"
#include "replay/client/batch_reader.h"
#include "replay/client/step_writer.h"
#include "replay/store/segment.h"
#include "tests/replay/episodes.h"
#include "tests/replay/service/service_process.h"
#include "tests/support/message_of.h"

namespace replicant::replay::testing {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Clock::TimePoint Soon() { return Clock::Real().Now() + seconds(60); }

// Limits every file to 4 KiB, as a full disk would; the log goes elsewhere.
std::vector<std::string> FullDisk() {
  return {"bash", "-c",
          "trap '' XFSZ; ulimit -f 4; exec \"$@\" 2> >(trap '' TERM; cat >&2)",
          "-"};
}

class BrokenDiskTest : public ::testing::Test {
 protected:
  BrokenDiskTest()
      : service_(REPLICANT_REPLAY, folder_.path(),
                 "  observation_bytes: 16\n"
                 "  action_bytes: 8\n"
                 "  tables:\n"
                 "    default:\n"
                 "      rate_limiter: {mode: min_size, min_size_to_sample: 1}\n"
                 "  checkpoint_interval_s: 0\n"
                 "  checkpoint_folder: " +
                     Checkpoints().string() + "\n") {}

  std::filesystem::path Checkpoints() const {
    return folder_.path() / "checkpoints";
  }
  // An episode of so many steps; whether all were acknowledged.
  bool Insert(int64_t num_steps, seconds timeout = seconds(60)) {
    const EpisodeMaker maker;
    StepWriter writer({.endpoint = service_.endpoint(), .shape = maker.shape});
    writer.BeginEpisode();
    for (int64_t t = 0; t < num_steps; ++t) {
      if (writer.Append({.observation = maker.Observation(1, t),
                         .action = maker.Action(1, t)},
                        Soon()) != AppendResult::kOk) {
        return false;
      }
    }
    static_cast<void>(
        writer.EndEpisode(maker.Observation(1, num_steps), {}, Soon()));
    return writer.Flush(Clock::Real().Now() + timeout);
  }
  // The result for a learner that asks for a checkpoint.
  std::string SaveProblem(uint64_t id) {
    BatchReader reader(
        {.endpoints = {service_.endpoint()}, .shape = EpisodeMaker().shape});
    return replicant::testing::MessageOf<CommError>([&] {
      EXPECT_EQ(reader.Checkpoint(id, Soon()), CheckpointState::kSaved);
    });
  }
  // The log, once it has `text`. FullDisk() pipes it through another process,
  // which may end after the service.
  std::string LogWith(const std::string& text) {
    const Clock::TimePoint give_up = Soon();
    while (service_.log().find(text) == std::string::npos &&
           Clock::Real().Now() < give_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return service_.log();
  }
  int64_t Items() {
    return service_.Status()["tables"][0]["size"].get<int64_t>();
  }

  const TemporaryFolder folder_;
  ServiceProcess service_;
};

TEST_F(BrokenDiskTest, AFullDiskIsToldAndTheServiceGoesOn) {
  service_.Start();
  ASSERT_TRUE(Insert(10));
  ASSERT_EQ(SaveProblem(1), "no exception");
  service_.Kill();

  service_.Start({}, FullDisk());
  EXPECT_EQ(Items(), 10);
  ASSERT_TRUE(Insert(500));
  EXPECT_THAT(SaveProblem(2), HasSubstr(Checkpoints().string()));
  EXPECT_EQ(Items(), 510);
  EXPECT_THAT(LogWith("append: "), HasSubstr("checkpoint: append: "));
  service_.Kill();

  // the one before is there
  service_.Start();
  EXPECT_THAT(service_.log(), HasSubstr("restored checkpoint 1 of id 1"));
  EXPECT_EQ(Items(), 10);
}

TEST_F(BrokenDiskTest, ALastCheckpointThatFailsIsAnErrorOfTheProgram) {
  service_.Start();
  ASSERT_TRUE(Insert(10));
  ASSERT_EQ(SaveProblem(1), "no exception");
  ASSERT_EQ(service_.Stop(), ExitStatus{});

  service_.Start({}, FullDisk());
  ASSERT_TRUE(Insert(500));
  EXPECT_EQ(service_.Stop(), ExitStatus{.code = 1});
  EXPECT_THAT(LogWith("stays the newest"),
              AllOf(HasSubstr("the last checkpoint was not saved: append: "),
                    HasSubstr("number 2 stays the newest")));
}

TEST_F(BrokenDiskTest, StatusNamesTheAgeAndTheFailuresOfCheckpoints) {
  service_.Start({}, FullDisk());
  EXPECT_EQ(service_.Status()["checkpoints"]["last"], 0);
  EXPECT_TRUE(service_.Status()["checkpoints"]["age_seconds"].is_null());
  ASSERT_TRUE(Insert(10));
  ASSERT_EQ(SaveProblem(1), "no exception");
  const nlohmann::json good = service_.Status()["checkpoints"];
  EXPECT_EQ(good["last"], 1);
  EXPECT_GE(good["age_seconds"].get<double>(), 0.0);
  EXPECT_EQ(good["failures"], 0);
  ASSERT_TRUE(Insert(500));
  ASSERT_NE(SaveProblem(2), "no exception");
  const nlohmann::json status = service_.Status()["checkpoints"];
  EXPECT_EQ(status["last"], 1);
  EXPECT_EQ(status["failures"], 1);
  EXPECT_THAT(status["problem"].get<std::string>(), HasSubstr("append: "));
}

TEST_F(BrokenDiskTest, AFolderInUseIsRefusedInOneLine) {
  service_.Start();
  const TemporaryFolder other;
  ServiceProcess second(REPLICANT_REPLAY, other.path(),
                        "  checkpoint_folder: " + Checkpoints().string());
  EXPECT_THAT(
      replicant::testing::MessageOf<Error>([&] { second.Start(); }),
      HasSubstr("replay: " + Checkpoints().string() + ": in use by process "));
}

// A chunk that cannot be written to the journal is not acknowledged.
TEST_F(BrokenDiskTest, AJournalOnAFullDiskHoldsTheWriterUp) {
  service_.Start({"--set", "replay.durability=journal"}, FullDisk());
  ASSERT_TRUE(Insert(10));
  EXPECT_FALSE(Insert(500, seconds(1)));
  const int64_t items = Items();
  EXPECT_GE(items, 10);
  EXPECT_LT(items, 500);
  service_.Kill();
  service_.Start({"--set", "replay.durability=journal"});
  EXPECT_EQ(Items(), items);
  EXPECT_THAT(service_.log(), Not(HasSubstr("no whole record")));
}

TEST_F(BrokenDiskTest, ADiskTierOnAFullDiskLeavesWhatMemoryHolds) {
  service_.Start({"--set", "replay.max_bytes=1048576", "--set",
                  "replay.disk_max_bytes=16777216", "--set",
                  "replay.disk_folder=" + (folder_.path() / "tier").string()},
                 FullDisk());
  ASSERT_TRUE(Insert(30'000));
  const nlohmann::json status = service_.Status();
  EXPECT_GT(status["disk"]["errors"].get<int64_t>(), 0);
  EXPECT_GT(status["counts"]["evicted_items"].get<int64_t>(), 0);
  EXPECT_LE(status["memory"]["bytes"].get<int64_t>(), 1048576);
  EXPECT_THAT(
      LogWith("the disk tier failed"),
      HasSubstr(
          "the disk tier failed, so the oldest steps in memory are evicted: "));
  service_.Kill();
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path() / "tier"));
}

TEST_F(BrokenDiskTest, DamagedFilesGiveTheOlderCheckpoint) {
  const auto damage = [](const std::filesystem::path& path, bool cuts) {
    std::string bytes = ReadFile(path);
    if (cuts) {
      bytes.resize(bytes.size() / 2);
    } else {
      bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 4);
    }
    std::ofstream(path, std::ios::binary) << bytes;
  };
  for (const bool cuts : {true, false}) {
    std::filesystem::remove_all(Checkpoints());
    for (const uint64_t id : {1, 2}) {
      // a segment for each
      service_.Start();
      ASSERT_TRUE(Insert(10));
      ASSERT_EQ(SaveProblem(id), "no exception");
      service_.Kill();
    }
    const auto segment = SegmentPath(Checkpoints(), 2);
    damage(segment, cuts);
    service_.Start();
    EXPECT_THAT(service_.log(), HasSubstr("checkpoint: " + segment.string() +
                                          ": no whole record at byte "));
    EXPECT_THAT(service_.log(), HasSubstr("restored checkpoint 1 of id 1"));
    EXPECT_EQ(Items(), 10);
    service_.Kill();
    // the next one takes its place, and its file is damaged
    service_.Start();
    ASSERT_TRUE(Insert(10));
    ASSERT_EQ(SaveProblem(3), "no exception");
    service_.Kill();
    damage(CheckpointPath(Checkpoints(), 3), cuts);
    service_.Start();
    EXPECT_EQ(Items(), 10);
    service_.Kill();
  }
}

TEST_F(BrokenDiskTest, AFolderThatCannotBeUsedEndsItWithOneLine) {
  std::ofstream(folder_.path() / "checkpoints") << "a file";
  EXPECT_THAT(replicant::testing::MessageOf([&] { service_.Start(); }),
              HasSubstr("replay: create folder: " + Checkpoints().string()));
}

// In this process, which can drop the rights of root for a while.
TEST_F(BrokenDiskTest, AReadOnlyFolderIsNamed) {
  std::filesystem::create_directories(Checkpoints());
  std::filesystem::permissions(Checkpoints(), std::filesystem::perms(0555));
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::seteuid(65534), 0);
  }
  ShardConfig config;
  config.tables.emplace_back();
  Shard shard(config, &Clock::Real());
  const std::string problem = replicant::testing::MessageOf<IoError>([&] {
    Checkpointer checkpointer({.folder = Checkpoints()}, &shard);
    checkpointer.Save();
  });
  const std::string tier_problem = replicant::testing::MessageOf<IoError>([&] {
    DiskTier tier({.folder = Checkpoints(), .max_bytes = 1 << 20});
    ChunkBuilder builder({}, 1, 0);
    builder.AddStep({}, {}, 1.0f, 1.0f);
    tier.Write(Chunk(builder.Finish({}), {}), {});
  });
  if (is_root) {
    ASSERT_EQ(::seteuid(0), 0);
  }
  EXPECT_THAT(problem, HasSubstr(Checkpoints().string()));
  EXPECT_THAT(problem, HasSubstr("Permission denied"));
  EXPECT_THAT(tier_problem, HasSubstr("tier-1.tmp: Permission denied"));
}

TEST_F(BrokenDiskTest, AStalledSideIsNamedWithinFiveSeconds) {
  service_.Start();
  BatchReader reader({.endpoints = {service_.endpoint()},
                      .name = "learner",
                      .shape = EpisodeMaker().shape});
  // five seconds by the service itself, however rarely it is asked
  const nlohmann::json status =
      service_.AwaitStatus([](const nlohmann::json& now) {
        const nlohmann::json& table = now["tables"][0];
        const nlohmann::json& wait = table["sample_wait"];
        return !table["stalled"].is_null() ||
               (!wait.is_null() && wait["seconds"] >= 5.0);
      });
  EXPECT_EQ(status["tables"][0]["stalled"]["side"], "writers");
  EXPECT_EQ(status["tables"][0]["sample_wait"]["who"], "learner");
}

// As at the end of a run, whose learner waits for a batch that will not come.
TEST_F(BrokenDiskTest, WritersThatHaveEndedAreNotCalledStalled) {
  ServiceProcess service(
      REPLICANT_REPLAY, folder_.path(),
      "  observation_bytes: 16\n"
      "  action_bytes: 8\n"
      "  tables:\n"
      "    default:\n"
      "      rate_limiter: {mode: min_size, min_size_to_sample: 1000}\n");
  service.Start();
  const EpisodeMaker maker;
  {
    StepWriter writer({.endpoint = service.endpoint(), .shape = maker.shape});
    writer.BeginEpisode();
    ASSERT_EQ(writer.Append({.observation = maker.Observation(1, 0),
                             .action = maker.Action(1, 0)},
                            Soon()),
              AppendResult::kOk);
    static_cast<void>(writer.EndEpisode(maker.Observation(1, 1), {}, Soon()));
    ASSERT_TRUE(writer.Flush(Soon()));
  }
  BatchReader reader({.endpoints = {service.endpoint()},
                      .name = "learner",
                      .shape = maker.shape});
  // the service looks for stalls once a second
  service.AwaitStatus([](const nlohmann::json& now) {
    const auto& stalled = now["tables"][0]["stalled"];
    return !stalled.is_null() && stalled["seconds"] > 6.0;
  });
  EXPECT_THAT(service.log(), Not(HasSubstr("have stalled")));
}

}  // namespace
}  // namespace replicant::replay::testing
