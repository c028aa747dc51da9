// A whole training whose replay has two shards.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class TrainingShardsTest : public TrainingFixture {
 protected:
  // The step of the newest whole checkpoint; 0: there is none.
  int64_t NewestStep() const {
    int64_t newest = 0;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(run_ / "checkpoints", error)) {
      const std::string name = entry.path().filename();
      if (!std::filesystem::exists(entry.path() / "manifest.yaml")) continue;
      newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
    }
    return newest;
  }
  bool AwaitCheckpointAfter(int64_t step) const {
    const auto deadline = Clock::Real().Now() + std::chrono::minutes(3);
    while (NewestStep() <= step && Clock::Real().Now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return NewestStep() > step;
  }
  CommandResult Run(const std::string& program,
                    std::vector<std::string> words) const {
    words.insert(words.begin(), std::filesystem::path(REPLICANT_FLEET)
                                    .replace_filename(program)
                                    .string());
    return RunCommand({.command = words}, std::chrono::minutes(3));
  }
  // The status of the run, once it matches; the last one after three minutes.
  template <typename Matcher>
  std::string AwaitStatus(const Matcher& matcher) const {
    const auto deadline = Clock::Real().Now() + std::chrono::minutes(3);
    std::string text;
    do {
      text = Run("fleet", {"--status", run_.string()}).output;
    } while (!::testing::Value(text, matcher) &&
             Clock::Real().Now() < deadline);
    return text;
  }
  CommandResult Resume(const std::string& setting, int64_t max_steps) const {
    return Run("fleet",
               {"--resume", run_.string(), "--set", setting, "--set",
                fmt::format("learner.limits.max_steps={}", max_steps)});
  }
};

// One shard is killed on the way: it comes back with its checkpoint, learner
// and actors go on, and later checkpoints hold both shards again.
TEST_F(TrainingShardsTest, AKilledShardComesBackAndTheTrainingGoesOn) {
  Process fleet(
      {.command = Command({"replay.shards=2", "learner.limits.max_steps=0",
                           "evaluation.enabled=false", "actors.count=2",
                           "learner.checkpoint_interval_s=0.3",
                           "fleet.restart.replay.initial_backoff_s=0.1"}),
       .stdout_file = folder_.path() / "out",
       .stderr_file = folder_.path() / "out"});
  ASSERT_TRUE(AwaitCheckpointAfter(0)) << Output();

  // only shards have an index other than 0 behind the option
  const pid_t shard = ProcessOf(fleet.pid(), "--index", "1");
  ASSERT_NE(shard, 0) << Output();
  ASSERT_EQ(::kill(shard, SIGKILL), 0);
  ASSERT_TRUE(
      AwaitFile(run_ / "logs" / "replay-1.2.log", "restored checkpoint"))
      << Output();
  ASSERT_TRUE(AwaitCheckpointAfter(NewestStep())) << Output();
  const auto has_both = AllOf(ContainsRegex("replay-0 [^\n]* items "),
                              ContainsRegex("replay-1 [^\n]* items "));
  EXPECT_THAT(AwaitStatus(has_both), has_both);
  // both are drawn from
  EXPECT_THAT(Run("replay", {"--status", run_.string()}).output,
              AllOf(ContainsRegex("shard 0 at [^\n]*replay-0\n"
                                  "[^s]*(.|\n)*[1-9][0-9]* samples"),
                    ContainsRegex("shard 1 at [^\n]*replay-1\n"
                                  "[^s]*(.|\n)*[1-9][0-9]* samples")));
  fleet.Signal(SIGINT);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status && status->ok()) << Output();
  const std::string text = Output();
  EXPECT_THAT(text, HasSubstr("replay-1: signal 9 (Killed); restart in"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("learner-0 starts (incarnation "
                                             "2)")));
  EXPECT_FALSE(std::filesystem::is_empty(run_ / "replay/shard-0-of-2"));

  // another number of shards is refused, and nothing is changed
  const int64_t step = NewestStep();
  const CommandResult refused = Resume("replay.shards=3", step + 10);
  EXPECT_EQ(refused.status.code, kExitConfig);
  EXPECT_THAT(refused.output,
              HasSubstr("replay.shards: 3, but " + (run_ / "replay").string() +
                        " holds checkpoints of 2; "));
  const CommandResult resumed = Resume("replay.shards=2", step + 10);
  EXPECT_TRUE(resumed.status.ok()) << resumed.output;
  for (const char* const log : {"replay-0.2.log", "replay-1.3.log"}) {
    EXPECT_THAT(ReadFile(run_ / "logs" / log), HasSubstr(" of id ")) << log;
  }
}

}  // namespace
}  // namespace replicant
