// Small sweeps of whole trainings.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainingSweepTest : public TrainingFixture {
 protected:
  // A sweep of a shipped recipe, made small; `more` has further keys.
  std::filesystem::path WriteSweep(const std::string& settings,
                                   const std::string& more) const {
    std::filesystem::path file = folder_.path() / "sweep.yaml";
    AtomicWriteFile(
        file,
        fmt::format("config: {}/configs/cartpole_swingup_state.yaml\n"
                    "folder: {}\n"
                    "variants:\n"
                    "  - name: small\n"
                    "    set:\n"
                    "      - agent.networks.policy_hidden_sizes=[16]\n"
                    "      - agent.networks.critic_hidden_sizes=[16]\n"
                    "      - actors.exploration.random_steps=50\n"
                    "      - learner.limits.max_seconds=0\n"
                    "      - evaluation.episodes=1\n"
                    "      - evaluation.video.enabled=false\n"
                    "      - replay.tables.default.rate_limiter."
                    "min_size_to_sample=100\n"
                    "      - {}\n{}",
                    REPLICANT_SOURCE_DIR, sweep_.string(), settings, more));
    return file;
  }
  std::vector<std::string> SweepCommand(
      const std::filesystem::path& file) const {
    return {REPLICANT_FLEET, "--sweep", file.string()};
  }
  CommandResult RunSweep(const std::filesystem::path& file) const {
    return RunCommand({.command = SweepCommand(file)}, std::chrono::minutes(5));
  }
  Process StartSweep(const std::filesystem::path& file) const {
    return Process({.command = SweepCommand(file),
                    .stdout_file = folder_.path() / "out",
                    .stderr_file = folder_.path() / "out"});
  }

  const std::filesystem::path sweep_ = folder_.path() / "runs";
};

TEST_F(TrainingSweepTest, TrainsEveryRunAndComparesThem) {
  const auto file =
      WriteSweep("learner.limits.max_steps=30",
                 "grid: [{key: agent.critic_optimizer.learning_rate, values: "
                 "[1e-4, 1e-3]}]"
                 "\njobs: 2\n");
  const CommandResult result = RunSweep(file);
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("2 runs, 2 at once"),
            HasSubstr(
                "run 001 (small, agent.critic_optimizer.learning_rate=1e-3, "
                "seed 1) complete, return "),
            HasSubstr("\nsmall, agent.critic_optimizer.learning_rate=1e-4 ")));
  EXPECT_THAT(
      ReadFile(sweep_ / "results.csv"),
      HasSubstr("001,\"small, agent.critic_optimizer.learning_rate=1e-3\",1,"));
  EXPECT_THAT(ReadFile(sweep_ / "001/config.yaml"),
              HasSubstr("learning_rate: 0.001"));

  // nothing is left to do
  const CommandResult again = RunSweep(file);
  EXPECT_TRUE(again.status.ok()) << again.output;
  EXPECT_THAT(again.output,
              AllOf(Not(HasSubstr("starts")), HasSubstr("last return")));

  // a run that was stopped at its limit, too
  AtomicWriteFile(sweep_ / "001/state.yaml", "status: stopped\nstarts: 1\n");
  const CommandResult at_limit = RunSweep(file);
  EXPECT_TRUE(at_limit.status.ok()) << at_limit.output;
  EXPECT_THAT(at_limit.output, AllOf(HasSubstr("seed 1) complete\n"),
                                     Not(HasSubstr("goes on"))));
  EXPECT_THAT(ReadFile(sweep_ / "001/state.yaml"),
              HasSubstr("status: complete\n"));

  // other settings do not mix with what is there
  const CommandResult changed =
      RunSweep(WriteSweep("learner.limits.max_steps=40",
                          "grid: [{key: agent.critic_optimizer.learning_rate, "
                          "values: [1e-4, 1e-3]}]"
                          "\njobs: 2\n"));
  EXPECT_FALSE(changed.status.ok());
  EXPECT_THAT(changed.output,
              AllOf(HasSubstr("000.yaml: holds another configuration than run "
                              "000"),
                    HasSubstr("another folder")));
  const CommandResult fewer =
      RunSweep(WriteSweep("learner.limits.max_steps=30",
                          "grid: [{key: agent.critic_optimizer.learning_rate, "
                          "values: [1e-4]}]\n"));
  EXPECT_FALSE(fewer.status.ok());
  EXPECT_THAT(fewer.output, HasSubstr("holds more than the 1 runs"));
}

TEST_F(TrainingSweepTest, ASignalStopsItsRunsWhichThenGoOn) {
  const auto endless = WriteSweep("learner.limits.max_steps=0", "");
  Process sweep = StartSweep(endless);
  // the learner has a batch, which it learns from before it ends
  ASSERT_TRUE(AwaitFile(sweep_ / "000/status.json", "\"samples_per_insert\""))
      << Output();
  const CommandResult second = RunSweep(endless);
  EXPECT_FALSE(second.status.ok());
  EXPECT_THAT(second.output, HasSubstr("in use by process "));
  sweep.Signal(SIGTERM);
  EXPECT_EQ(sweep.Wait().code, 1) << Output();
  EXPECT_THAT(Output(), HasSubstr("run 000 (small, seed 1) stopped, return "));

  std::filesystem::remove(sweep_ / "000.log");
  Process resumed = StartSweep(endless);
  ASSERT_TRUE(AwaitFile(sweep_ / "000.log", "run folder: ")) << Output();
  EXPECT_THAT(Output(), HasSubstr("seed 1) goes on"));
  resumed.Signal(SIGTERM);
  ASSERT_TRUE(AwaitFile(sweep_ / "000.log", "; draining")) << Output();
  // for a fleet it is the same one, which no SIGKILL follows
  resumed.Signal(SIGTERM);
  resumed.Wait();
  EXPECT_THAT(Output(), Not(HasSubstr("Killed")));
  EXPECT_THAT(ReadFile(sweep_ / "000/state.yaml"),
              HasSubstr("status: stopped"));

  // Would catch a run that counts as stopped, since an earlier start was: no
  // address can be written.
  std::filesystem::remove(sweep_ / "000/addresses.yaml");
  std::filesystem::create_directories(sweep_ / "000/addresses.yaml/full");
  const CommandResult failed = RunSweep(endless);
  EXPECT_EQ(failed.status.code, 1);
  EXPECT_THAT(failed.output, HasSubstr("run 000 (small, seed 1) failed"));
  EXPECT_THAT(ReadFile(sweep_ / "000/state.yaml"),
              HasSubstr("status: stopped"));
}

// Would catch a sweep that ends, and so kills the other runs.
TEST_F(TrainingSweepTest, ARunWhoseFilesAreDamagedHoldsUpNoOther) {
  const auto endless = WriteSweep(
      "learner.limits.max_steps=0\n"
      "      - evaluation.enabled=false",
      "seeds: [1, 2]\njobs: 2\n");
  Process sweep = StartSweep(endless);
  ASSERT_TRUE(AwaitFile(sweep_ / "000/status.json", "\"updates_per_s\""))
      << Output();
  ASSERT_TRUE(AwaitFile(sweep_ / "001/status.json", "\"updates_per_s\""))
      << Output();
  AtomicWriteFile(sweep_ / "000/evaluations.jsonl", "damaged\n");
  RunCommand({.command = {REPLICANT_FLEET, "--stop", sweep_ / "000"}},
             std::chrono::minutes(3));
  ASSERT_TRUE(AwaitFile(folder_.path() / "out",
                        "run 000 (small, seed 1) fails: " +
                            (sweep_ / "000/evaluations.jsonl:1: ").string()))
      << Output();
  sweep.Signal(SIGTERM);
  EXPECT_EQ(sweep.Wait(), (ExitStatus{1, 0})) << Output();
  EXPECT_THAT(Output(), HasSubstr("run 001 (small, seed 2) stopped"));

  AtomicWriteFile(sweep_ / "000/state.yaml", "status: damaged\n");
  Process resumed = StartSweep(endless);
  ASSERT_TRUE(AwaitFile(folder_.path() / "out", "seed 2) goes on")) << Output();
  EXPECT_THAT(Output(), HasSubstr("seed 1) fails: " +
                                  (sweep_ / "000/state.yaml:1:").string()));
  resumed.Signal(SIGTERM);
  resumed.Wait();
}

// A pole that hangs never has the returns of one that stands.
TEST_F(TrainingSweepTest, ARunThatFallsBehindIsStoppedForGood) {
  const auto file = WriteSweep(
      "learner.limits.max_seconds=60\n"
      "      - evaluation.interval_s=0.5",
      "grid: [{key: task.name, values: ['\"cartpole-balance\"', "
      "cartpole-swingup]}]\n"
      "median_rule: {enabled: true, min_complete_runs: 1}\n");
  const CommandResult result = RunSweep(file);
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("run 001 (small, task.name=cartpole-"
                                       "swingup, seed 1) is stopped at step "));
  EXPECT_THAT(ReadFile(sweep_ / "001.stopped"),
              HasSubstr("the median of the complete runs"));
  EXPECT_THAT(
      ReadFile(sweep_ / "results.csv"),
      HasSubstr("000,\"small, task.name=\"\"cartpole-balance\"\"\",1,"));

  const CommandResult again = RunSweep(file);
  EXPECT_TRUE(again.status.ok()) << again.output;
  EXPECT_THAT(again.output, Not(HasSubstr("goes on")));
}

TEST_F(TrainingSweepTest, AMistakeInOneRunComesBeforeTheFirstStarts) {
  const CommandResult result =
      RunSweep(WriteSweep("learner.limits.max_steps=30",
                          "grid: [{key: agent.critic_optimizer.learning_rate, "
                          "values: [1e-3, -7]}]\n"));
  EXPECT_FALSE(result.status.ok());
  EXPECT_THAT(
      result.output,
      AllOf(HasSubstr("sweep.yaml: run 001 (small, "
                      "agent.critic_optimizer.learning_rate=-7, seed 1): "),
            HasSubstr("agent.critic_optimizer.learning_rate")));
  EXPECT_FALSE(std::filesystem::exists(sweep_));
}

}  // namespace
}  // namespace replicant
