// Trainings that cannot go on: wrong settings, a full disk, an address in use.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/rpc/socket.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class TrainingMistakesTest : public TrainingFixture {};

TEST_F(TrainingMistakesTest, AMistakeStartsNothing) {
  const auto expect = [&](const std::string& setting,
                          const std::string& message, int code = kExitConfig) {
    const CommandResult result = RunFleet({setting});
    EXPECT_EQ(result.status.code, code) << setting;
    EXPECT_THAT(result.output, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(run_)) << setting;
  };
  expect("learner.limit.max_steps=5", "unknown key");
  expect("actors.count=0", "actors.count");
  expect("task.name=cartpole-swingu", "cartpole-swingup");
  expect("agent.distribution.v_max=10", "v_max");
  expect("run.dir=/proc/none", "/proc/none", 1);
  expect("evaluation.video.camera=nowhere", "nowhere");
  expect("evaluation={enabled: false, stop_at_return: 5}",
         "evaluation.stop_at_return: needs evaluations");
  expect("task.suite_folder=/nowhere", "/nowhere");
  expect("task.pixels={enabled: true, camera: front}",
         "fleet: --set task.pixels={enabled: true, camera: front}: "
         "task.pixels.camera: cartpole-swingup: no camera 'front'; allowed: ");
  expect("task.mjcf=/nowhere.xml",
         "fleet: --set task.mjcf=/nowhere.xml: task.mjcf: MJCF: /nowhere.xml: "
         "no such file");
  expect("agent.networks.encoder.kind=light",
         "agent.networks.encoder.kind: wants pixels");
  expect("replay.tables.default.max_size=100",
         "learner.batch_size: 128 is more than "
         "replay.tables.default.max_size = 100");
  expect("replay.max_bytes=4GB", "hint: write 4e9 (bytes)");
  expect("agent.random_shift=4", "agent.random_shift: wants pixels");
  expect("replay.bind=tcp://*:0", "replay.bind");
  expect("learner.parameter_bind=tcp://127.0.0.1:0",
         "learner.parameter_bind: 'tcp://127.0.0.1:0' is not a port that the "
         "other roles would find; allowed: a port, * for a free one, or auto");
  expect("replay.bind=tcp://203.0.113.1:*",
         "replay.bind: tcp://203.0.113.1:*: Cannot assign requested address");
  expect("run.key_file=/nowhere/run.key", "run.key_file: ");
}

// A command among the options of a run is no training.
TEST_F(TrainingMistakesTest, ACommandStandsAlone) {
  for (const auto& [words, message] :
       {std::pair(std::vector<std::string>{"--stop", "RUN"},
                  "fleet: --stop: want it alone: fleet --stop RUN"),
        std::pair(std::vector<std::string>{"--sweep=FILE"},
                  "fleet: --sweep=FILE: want it alone: fleet --sweep FILE"),
        std::pair(std::vector<std::string>{"--to", "FOLDER"},
                  "fleet: --to: needs --render")}) {
    std::vector<std::string> command = Command({});
    command.insert(command.end(), words.begin(), words.end());
    const CommandResult result =
        RunCommand({.command = command}, std::chrono::minutes(1));
    EXPECT_EQ(result.status.code, kExitConfig);
    EXPECT_THAT(result.output, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(run_));
  }
}

// What shows once there is a folder is a mistake all the same.
TEST_F(TrainingMistakesTest, AnAgentThatCannotBeStartedEndsTheRun) {
  const CommandResult result =
      RunFleet({"cluster={backend: ssh, address: 127.0.0.1, hosts: [{name: "
                "h1}], ssh_command: \"/no/such {host} {command}\"}"});
  EXPECT_EQ(result.status.code, kExitConfig);
  EXPECT_THAT(result.output,
              HasSubstr("cluster.ssh_command: the agent of host h1 cannot be "
                        "started: execute: /no/such: "));
  EXPECT_THAT(ReadFile(run_ / "state.yaml"), HasSubstr("status: failed\n"));
  const CommandResult status =
      RunCommand({.command = {REPLICANT_FLEET, "--status", run_.string()}},
                 std::chrono::minutes(1));
  EXPECT_THAT(status.output,
              HasSubstr(": no report (status.json) was written; the run's "
                        "status: failed\n"));

  // Would catch hosts that find an address, and no key: no address can be
  // written.
  std::filesystem::remove(run_ / "run.key");
  std::filesystem::remove(run_ / "addresses.yaml");
  std::filesystem::create_directories(run_ / "addresses.yaml" / "full");
  const CommandResult resumed =
      RunCommand({.command = {REPLICANT_FLEET, "--resume", run_.string()}},
                 std::chrono::minutes(1));
  EXPECT_EQ(resumed.status.code, 1);
  EXPECT_THAT(resumed.output, HasSubstr("addresses.yaml"));
  EXPECT_TRUE(std::filesystem::exists(run_ / "run.key"));
}

TEST_F(TrainingMistakesTest, ACommandOfARoleThatDoesNotExistEndsTheRun) {
  const CommandResult result =
      RunFleet({"cluster.roles.replay.command=\"/no/such {command}\""});
  EXPECT_EQ(result.status.code, kExitConfig);
  EXPECT_THAT(result.output,
              HasSubstr("replay-0 cannot be started: execute: /no/such: No "
                        "such file or directory\n"));
  EXPECT_THAT(ReadFile(run_ / "state.yaml"), HasSubstr("status: failed\n"));
}

// A file that may not grow is what a full disk looks like to its writer.
// The run trains through it, ends at its limit once, and says what is missing.
TEST_F(TrainingMistakesTest, ADiskThatFillsUpCostsTheLastCheckpoint) {
  const auto run_with = [&](int limit_of_half_kib) {
    std::vector<std::string> command = {"sh", "-c",
                                        "trap '' XFSZ; ulimit -f " +
                                            std::to_string(limit_of_half_kib) +
                                            "; exec \"$@\"",
                                        "sh"};
    const auto fleet = Command({"agent.networks.critic_hidden_sizes=[256, 256]",
                                "learner.checkpoint_interval_s=0"});
    command.insert(command.end(), fleet.begin(), fleet.end());
    return RunCommand({.command = command}, std::chrono::minutes(3));
  };
  const CommandResult at_first = run_with(1);
  EXPECT_EQ(at_first.status.code, 1);
  EXPECT_THAT(at_first.output,
              MatchesRegex("fleet: run folder .*: File too large; hint: .*\n"));
  std::filesystem::remove_all(run_);
  const CommandResult later = run_with(100);
  EXPECT_EQ(later.status.code, 1);
  EXPECT_THAT(later.output,
              HasSubstr("status              complete: learner-0 has completed "
                        "the run: step limit; no checkpoint of step "));
  EXPECT_THAT(later.output, HasSubstr(": File too large\n"));
  EXPECT_THAT(later.output, Not(HasSubstr("restart in")));
}

TEST_F(TrainingMistakesTest, AnAddressInUseIsNamed) {
  rpc::ZmqContext context;
  rpc::ZmqSocket socket(context, rpc::SocketType::kRouter);
  const std::string endpoint = socket.Bind("tcp://127.0.0.1:*");
  const CommandResult result = RunFleet({"replay.bind=" + endpoint});
  EXPECT_EQ(result.status.code, kExitConfig);
  EXPECT_THAT(result.output,
              HasSubstr(": replay.bind: bind " + endpoint +
                        ": Address already in use; hint: another process "
                        "listens there"));
  EXPECT_FALSE(std::filesystem::exists(run_));
}

}  // namespace
}  // namespace replicant
