// The workload of docs/your_own_workload.md (sine_main.cc), under every
// strategy.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/fs.h"
#include "base/process.h"

namespace replicant::replicator {
namespace {

using ::testing::HasSubstr;

constexpr auto kTimeout = std::chrono::seconds(180);
// Replicas that do not wait for each other end at 0.006 to 0.04; one that was
// interrupted for long puts an old gradient on top. Without learning the loss
// is 0.5.
constexpr double kLargestLossWithoutWaiting = 0.15;

// The loss at the end, with the file's contents as configuration.
double LossOf(const std::string& yaml, std::vector<std::string> launcher = {}) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("sine-{}", getpid());
  std::filesystem::create_directories(folder);
  AtomicWriteFile(folder / "replication.yaml", yaml);
  std::vector<std::string> command = std::move(launcher);
  command.emplace_back(REPLICANT_SINE);
  command.push_back((folder / "replication.yaml").string());
  const CommandResult result = RunCommand({.command = command}, kTimeout);
  std::filesystem::remove_all(folder);
  double loss = NAN;
  EXPECT_TRUE(result.status.ok()) << result.output;
  // mpirun may have said something before
  const size_t at = std::min(result.output.find("loss "), result.output.size());
  EXPECT_EQ(std::sscanf(result.output.c_str() + at, "loss %lf", &loss), 1)
      << result.output;
  return loss;
}

TEST(SineTest, ThePageShowsThisProgram) {
  const std::string root = REPLICANT_SOURCE_DIR;
  const std::string program = ReadFile(root + "/tests/replicator/sine_main.cc");
  EXPECT_THAT(ReadFile(root + "/docs/your_own_workload.md"),
              HasSubstr("```cpp\n" + program + "```\n"));
}

TEST(SineTest, LearnsOnAnyNumberOfReplicas) {
  const double one = LossOf("{}");
  EXPECT_LT(one, 0.02);
  EXPECT_NEAR(LossOf("{strategy: in_graph, replicas: 2}"), one, 1e-4);
  EXPECT_NEAR(LossOf("{strategy: in_graph, replicas: 4}"), one, 1e-4);
}

TEST(SineTest, LearnsOnReplicasThatDoNotWaitForEachOther) {
  EXPECT_EQ(LossOf("{strategy: hogwild}"), LossOf("{}"));
  EXPECT_LT(LossOf("{strategy: hogwild, replicas: 2}"),
            kLargestLossWithoutWaiting);
}

// Two replicas in each process: the bits equal one process's, whatever moves
// the gradients.
TEST(SineTest, LearnsInProcessesThatMeetOverTcp) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       fmt::format("sine-tcp-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string yaml = fmt::format(
      "{{strategy: between_graph, replicas: 4, replicas_per_process: 2,\n"
      " communicator: tcp, rendezvous: {}/rendezvous, timeout_s: 120}}",
      folder.string());
  AtomicWriteFile(folder / "other.yaml", yaml);
  Process other({.command = {REPLICANT_SINE, (folder / "other.yaml").string(),
                             "worker", "1"}});
  EXPECT_EQ(LossOf(yaml), LossOf("{strategy: in_graph, replicas: 4}"));
  const auto status = other.Wait(kTimeout);
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(status->ok()) << status->ToString();
  std::filesystem::remove_all(folder);
}

// Starts the other processes of a training, and is the first one.
TEST(SineTest, LearnsWithParameterServers) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       fmt::format("sine-servers-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string yaml = fmt::format(
      "{{strategy: parameter_server, replicas: 4, replicas_per_group: 2,\n"
      " servers: [ipc://{0}/a, ipc://{0}/b], timeout_s: 120}}",
      folder.string());
  AtomicWriteFile(folder / "others.yaml", yaml);
  std::vector<std::unique_ptr<Process>> others;
  for (const std::vector<std::string>& role :
       {std::vector<std::string>{"server", "0"},
        {"server", "1"},
        {"worker", "1"}}) {
    ProcessOptions options;
    options.command = {REPLICANT_SINE, (folder / "others.yaml").string()};
    options.command.insert(options.command.end(), role.begin(), role.end());
    others.push_back(std::make_unique<Process>(options));
  }
  EXPECT_LT(LossOf(yaml), kLargestLossWithoutWaiting);
  for (const auto& other : others) {
    const auto status = other->Wait(kTimeout);
    ASSERT_TRUE(status.has_value());
    EXPECT_TRUE(status->ok()) << status->ToString();
  }
  std::filesystem::remove_all(folder);
}

// One group of two processes: the bits of two replicas in one.
TEST(SineTest, LearnsWithAGroupOfTwoProcesses) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() /
                                       fmt::format("sine-group-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string yaml = fmt::format(
      "{{strategy: parameter_server, replicas: 2, replicas_per_group: 2,\n"
      " processes_per_group: 2, rendezvous: {0}/meet, servers: [ipc://{0}/a],\n"
      " timeout_s: 120}}",
      folder.string());
  AtomicWriteFile(folder / "others.yaml", yaml);
  std::vector<std::unique_ptr<Process>> others;
  for (const auto& [role, index] :
       {std::pair("server", "0"), {"worker", "1"}}) {
    others.push_back(std::make_unique<Process>(ProcessOptions{
        .command = {REPLICANT_SINE, (folder / "others.yaml").string(), role,
                    index}}));
  }
  EXPECT_EQ(LossOf(yaml), LossOf("{strategy: in_graph, replicas: 2}"));
  for (const auto& other : others) {
    const auto status = other->Wait(kTimeout);
    ASSERT_TRUE(status.has_value());
    EXPECT_TRUE(status->ok()) << status->ToString();
  }
  std::filesystem::remove_all(folder);
}

#if REPLICANT_MPI
TEST(SineTest, LearnsInManyProcesses) {
  const std::vector<std::string> mpirun = {
      "mpirun",    "-n",  "2", "--oversubscribe", "--allow-run-as-root",
      "--bind-to", "none"};
  EXPECT_EQ(LossOf("{strategy: between_graph, replicas: 2}", mpirun),
            LossOf("{strategy: in_graph, replicas: 2}"));
  EXPECT_EQ(LossOf("{strategy: between_graph, replicas: 4, "
                   "replicas_per_process: 2}",
                   mpirun),
            LossOf("{strategy: in_graph, replicas: 4}"));
}
#endif

}  // namespace
}  // namespace replicant::replicator
