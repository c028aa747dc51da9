// Whole trainings by the program `fleet` whose replicas do not wait for each
// other.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/process.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::HasSubstr;

constexpr auto kPatience = std::chrono::minutes(3);

class AsynchronousTrainingTest : public TrainingFixture {
 protected:
  // At its own addresses, without an end.
  std::vector<std::string> Command(
      const std::string& replication,
      const std::vector<std::string>& more_settings) const {
    std::vector<std::string> settings = {
        "learner.limits.max_steps=0",
        "evaluation.enabled=false",
        "learner.log_interval_s=0.2",
        "learner.replication=" + replication,
        "replay.bind=ipc://" + (folder_.path() / "r").string(),
        "learner.parameter_bind=ipc://" + (folder_.path() / "p").string()};
    settings.insert(settings.end(), more_settings.begin(), more_settings.end());
    return TrainingFixture::Command(settings);
  }
  // Two workers on two servers.
  std::string Servers() const {
    return fmt::format(
        "{{strategy: parameter_server, replicas: 2, servers: [ipc://{0}/a, "
        "ipc://{0}/b], staleness: 1, server_checkpoint_interval_s: 0.2}}",
        folder_.path().string());
  }
  std::string LogOf(const std::string& process) const {
    const auto file = run_ / "logs" / (process + ".log");
    return std::filesystem::exists(file) ? ReadFile(file) : "";
  }
  // Whether the log of a process comes to hold the text.
  bool AwaitLog(const std::string& process, const std::string& text) const {
    return AwaitFile(run_ / "logs" / (process + ".log"), text);
  }
  // The version that the second server has saved; 0: none.
  int64_t SavedVersion() const {
    const auto saved = run_ / "servers" / "server-1";
    if (!std::filesystem::exists(saved)) return 0;
    int64_t newest = 0;
    for (const auto& entry : std::filesystem::directory_iterator(saved)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("version-")) {
        newest = std::max<int64_t>(newest, std::stoll(name.substr(8)));
      }
    }
    return newest;
  }
  // Whether it comes to have saved one beyond `version`.
  bool AwaitSaved(int64_t version) const {
    return Await([&] { return SavedVersion() > version; });
  }
  // The process of the run with these arguments.
  pid_t FindProcess(const std::string& role, const std::string& index) const {
    const std::string words =
        fmt::format("--role{0}{1}{0}--index{0}{2}", '\0', role, index);
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      std::ifstream in(entry.path() / "cmdline");
      const std::string all{std::istreambuf_iterator<char>(in), {}};
      if (all.find(words) != std::string::npos &&
          all.find(run_.string()) != std::string::npos) {
        return std::stoi(entry.path().filename().string());
      }
    }
    return 0;
  }
};

TEST_F(AsynchronousTrainingTest, HogwildTrainsAndLeavesAWholeCheckpoint) {
  const CommandResult result =
      RunCommand({.command = Command("{strategy: hogwild, replicas: 2}",
                                     {"learner.limits.max_steps=50"})},
                 kPatience);
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(result.output, HasSubstr("updates             50 ("));
  EXPECT_TRUE(std::filesystem::exists(
      run_ / "checkpoints/step-000000000050/manifest.yaml"));
}

TEST_F(AsynchronousTrainingTest, ParameterServersTrainAndGoOn) {
  const CommandResult result = RunCommand(
      {.command = Command(Servers(), {"learner.limits.max_steps=50"})},
      kPatience);
  EXPECT_TRUE(result.status.ok()) << result.output;
  EXPECT_THAT(LogOf("learner-0.1"), HasSubstr("step limit"));
  EXPECT_THAT(LogOf("server-0.1"), HasSubstr("of 1 versions behind; 0 lost"));
  const CommandResult resumed =
      RunCommand({.command = {REPLICANT_FLEET, "--resume", run_.string(),
                              "--set", "learner.limits.max_steps=90"}},
                 kPatience);
  EXPECT_TRUE(resumed.status.ok()) << resumed.output;
  EXPECT_THAT(LogOf("learner-0.2"),
              HasSubstr("continues from the checkpoint of step 5"));
}

TEST_F(AsynchronousTrainingTest, AKilledWorkerAndServerComeBack) {
  const auto output = folder_.path() / "output";
  Process fleet({.command = Command(Servers(), {}),
                 .stdout_file = output,
                 .stderr_file = output});
  ASSERT_TRUE(AwaitLog("server-0.1", "worker 1 joins")) << ReadFile(output);
  const pid_t worker = FindProcess("worker", "1");
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(AwaitLog("server-0.1", "worker 1 joins again"))
      << LogOf("server-0.1");
  // once it has saved something
  ASSERT_TRUE(AwaitSaved(0));
  const pid_t server = FindProcess("server", "1");
  ASSERT_GT(server, 0);
  ::kill(server, SIGKILL);
  ASSERT_TRUE(AwaitLog("server-1.2", "continues from version"))
      << ReadFile(output);
  ASSERT_TRUE(AwaitSaved(SavedVersion())) << ReadFile(output);
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(kPatience);
  ASSERT_TRUE(status.has_value()) << ReadFile(output);
  EXPECT_TRUE(status->ok()) << ReadFile(output);
  // the learner itself was there all the time
  EXPECT_THAT(ReadFile(output),
              ::testing::Not(HasSubstr("learner-0 starts (incarnation 2)")));
}

// Would catch a learner and a worker that wait for the server until the fleet
// kills them.
TEST_F(AsynchronousTrainingTest, ARunEndsThoughAServerIsAway) {
  const auto output = folder_.path() / "output";
  Process fleet(
      {.command = Command(Servers(), {"fleet.restart.server={initial_backoff_s:"
                                      " 300, max_backoff_s: 300}"}),
       .stdout_file = output,
       .stderr_file = output});
  ASSERT_TRUE(AwaitLog("server-1.1", "worker 1 joins")) << ReadFile(output);
  ASSERT_TRUE(AwaitSaved(0));
  ::kill(FindProcess("server", "1"), SIGKILL);
  ASSERT_TRUE(AwaitFile(output, "server-1: signal")) << ReadFile(output);
  fleet.Signal(SIGTERM);
  // the fleet would kill them after five minutes
  const auto status = fleet.Wait(kPatience);
  ASSERT_TRUE(status.has_value()) << ReadFile(output);
  // the variables of the server are not in a checkpoint
  EXPECT_EQ(status->code, 1) << ReadFile(output);
  EXPECT_THAT(ReadFile(output), HasSubstr("worker 0: parameter server 1 at"));
}

// A worker that is left out, its restarts used up, and joins again later.
TEST_F(AsynchronousTrainingTest, AWorkerLeavesAndJoinsWhileTheOthersTrain) {
  const auto output = folder_.path() / "output";
  Process fleet({.command = Command(
                     Servers(), {"fleet.restart.worker={budget: 0, window_s: "
                                 "4}"}),
                 .stdout_file = output,
                 .stderr_file = output});
  ASSERT_TRUE(AwaitLog("server-0.1", "worker 1 joins")) << ReadFile(output);
  ASSERT_TRUE(AwaitSaved(0));
  const pid_t worker = FindProcess("worker", "1");
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  // the servers take the pushes of the other one
  ASSERT_TRUE(AwaitSaved(SavedVersion())) << ReadFile(output);
  ASSERT_TRUE(AwaitLog("server-0.1", "worker 1 joins again"))
      << ReadFile(output);
  ASSERT_TRUE(AwaitSaved(SavedVersion())) << ReadFile(output);
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(kPatience);
  ASSERT_TRUE(status.has_value()) << ReadFile(output);
  EXPECT_TRUE(status->ok()) << ReadFile(output);
  const std::string log = ReadFile(output);
  EXPECT_THAT(log, HasSubstr(" s; the run continues without it"));
  for (const char* role : {"learner-0", "server-0", "server-1", "replay-0"}) {
    EXPECT_THAT(log, ::testing::Not(HasSubstr(std::string(role) +
                                              " starts (incarnation 2)")));
  }
}

}  // namespace
}  // namespace replicant
