// The program `fleet` with the real roles: a whole training, a minute long at
// most.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/fs.h"
#include "core/base/process.h"
#include "core/rpc/socket.h"

namespace replicant {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrainingTest : public ::testing::Test {
 protected:
  // The shipped recipe, made small, on ports of its own.
  CommandResult RunFleet(std::vector<std::string> settings,
                         const std::vector<std::string>& words = {}) {
    std::vector<std::string> command = {
        REPLICANT_FLEET, "--config",
        std::string(REPLICANT_SOURCE_DIR) +
            "/configs/cartpole_swingup_state.yaml"};
    settings.insert(
        settings.begin(),
        {"run.dir=" + run_.string(), "agent.networks.policy_hidden_sizes=[16]",
         "agent.networks.critic_hidden_sizes=[16]",
         "learner.limits.max_steps=50", "actors.exploration.random_steps=50",
         "replay.bind=ipc://" + (folder_.path() / "r").string(),
         "learner.parameter_bind=ipc://" + (folder_.path() / "p").string(),
         "replay.tables.default.rate_limiter."
         "min_size_to_sample=100"});
    for (const std::string& setting : settings) {
      command.push_back("--set");
      command.push_back(setting);
    }
    command.insert(command.end(), words.begin(), words.end());
    return RunCommand({.command = command}, std::chrono::minutes(3));
  }

  TemporaryFolder folder_;
  std::filesystem::path run_ = folder_.path() / "run";
};

TEST_F(TrainingTest, TrainsAndLeavesAFolder) {
  const CommandResult result = RunFleet({});
  EXPECT_TRUE(result.status.ok()) << result.output;
  for (const char* name :
       {"config.yaml", "run.yaml", "learner.jsonl",
        "checkpoints/step-000000000050/variables.safetensors"}) {
    EXPECT_TRUE(std::filesystem::exists(run_ / name)) << name;
  }
  EXPECT_THAT(ReadFile(run_ / "logs" / "actor-0.1.log"),
              HasSubstr("ends after"));
  EXPECT_FALSE(std::filesystem::is_empty(run_ / "replay"));
}

TEST_F(TrainingTest, AMistakeStartsNothing) {
  const auto expect = [&](const std::string& setting,
                          const std::string& message) {
    const CommandResult result = RunFleet({setting});
    EXPECT_EQ(result.status.code, 1) << setting;
    EXPECT_THAT(result.output, HasSubstr(message));
    EXPECT_FALSE(std::filesystem::exists(run_)) << setting;
  };
  expect("learner.limit.max_steps=5", "unknown key");
  expect("actors.count=0", "actors.count");
  expect("task.name=cartpole-swingu", "cartpole-swingup");
  expect("agent.distribution.v_max=10", "v_max");
  expect("run.dir=/proc/none", "/proc/none");
  expect("task.suite_folder=/nowhere", "/nowhere");
  expect("task.pixels={enabled: true, camera: front}", "front");
  expect("agent.random_shift=4", "agent.random_shift: wants pixels");
  expect("replay.bind=tcp://*:0", "replay.bind");
}

TEST_F(TrainingTest, AnAddressInUseIsNamed) {
  rpc::ZmqContext context;
  rpc::ZmqSocket socket(context, rpc::SocketType::kRouter);
  const std::string endpoint = socket.Bind("tcp://127.0.0.1:*");
  const CommandResult result = RunFleet({"replay.bind=" + endpoint});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(result.output,
              HasSubstr("fleet: replay.bind: bind " + endpoint +
                        ": Address already in use; hint: another process "
                        "listens there"));
  EXPECT_FALSE(std::filesystem::exists(run_));
}

}  // namespace
}  // namespace replicant
