// Trainings on replicas in processes that the fleet itself starts, which meet
// over TCP: their end, a resumed run, and lost replicas.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/fs.h"
#include "base/process.h"
#include "base/tensor/safetensors.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class TrainingTcpTest : public TrainingFixture {};

TEST_F(TrainingTcpTest, TrainsOnReplicasAndGoesOn) {
  ExpectTrainsAndGoesOn(
      "{strategy: between_graph, replicas: 2, communicator: tcp}");
}

// The process of a run in whose command line the words are.
pid_t ProcessOf(const std::filesystem::path& run, const std::string& words) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream in(entry.path() / "cmdline");
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    if (all.find(words) != std::string::npos &&
        all.find(run.string()) != std::string::npos) {
      return std::stoi(entry.path().filename().string());
    }
  }
  return 0;
}

// The others name a worker that is killed, with its address, and the fleet
// starts the group again from the checkpoint.
TEST_F(TrainingTcpTest, AWorkerThatIsKilledEndsTheGroupWhichThenGoesOn) {
  Process fleet = StartReplicas(/*heartbeat_timeout_s=*/10.0, "tcp");
  const auto log = run_ / "logs" / "learner-0.1.log";
  ASSERT_TRUE(AwaitFile(log, "stood still for")) << Output();
  const pid_t worker = ProcessOf(
      run_, std::string("--role\0worker", sizeof("--role\0worker") - 1));
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(AwaitFile(run_ / "logs" / "learner-0.2.log",
                        "continues from the checkpoint of step"))
      << Output();
  EXPECT_THAT(ReadFile(log), ContainsRegex(fmt::format(
                                 "rank 0 of 2 ends: rank 1 of 2 \\([^ ]+/{} at "
                                 "127.0.0.1:[0-9]+\\) has lost its connection",
                                 worker)));
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status.has_value()) << Output();
  EXPECT_TRUE(status->ok()) << Output();
}

// The number behind the last `words` of a log.
int64_t NumberBehind(const std::filesystem::path& log,
                     const std::string& words) {
  const std::string text = ReadFile(log);
  const size_t at = text.rfind(words);
  return at == std::string::npos ? -1
                                 : std::stoll(text.substr(at + words.size()));
}

// Three processes, of which one stays lost: the group continues with two from
// the newest checkpoint, and grows to three again from where the two have
// ended.
TEST_F(TrainingTcpTest, AGroupGoesOnWithoutALostWorkerAndGrowsAgain) {
  const std::string resumed = "continues from the checkpoint of step ";
  Process fleet({.command = Command(
                     {"learner.limits.max_steps=0", "learner.batch_size=90",
                      "learner.checkpoint_interval_s=0.3",
                      "evaluation.enabled=false", "learner.log_interval_s=0.1",
                      "learner.replication.strategy=between_graph",
                      "learner.replication.replicas=3",
                      "learner.replication.min_processes=2",
                      "learner.replication.communicator=tcp",
                      "fleet.restart.worker={budget: 0, window_s: 5}"}),
                 .stdout_file = folder_.path() / "out",
                 .stderr_file = folder_.path() / "out"});
  const auto log = [&](int incarnation) {
    return run_ / "logs" / fmt::format("learner-0.{}.log", incarnation);
  };
  ASSERT_TRUE(AwaitFile(log(1), "stood still for")) << Output();
  const pid_t worker =
      ProcessOf(run_, std::string("--role\0worker\0--index\0001",
                                  sizeof("--role\0worker\0--index\0001") - 1));
  ASSERT_GT(worker, 0);
  ::kill(worker, SIGKILL);
  ASSERT_TRUE(AwaitFile(log(2), resumed)) << Output();
  EXPECT_THAT(ReadFile(log(2)),
              HasSubstr("2 of 3 processes: 2 replicas with 45 rows of a step "
                        "each (90 of 90 in all), learning rates x 1"));
  // one may be complete that the log does not name any more
  EXPECT_GE(NumberBehind(log(2), resumed), NumberBehind(log(1), " of step "));
  EXPECT_THAT(Output(), HasSubstr("the group continues with 2 of 3 members"));

  ASSERT_TRUE(AwaitFile(log(3), resumed)) << Output();
  // nothing is computed twice when it grows
  EXPECT_EQ(NumberBehind(log(3), resumed),
            NumberBehind(log(2), "ends at step "));
  EXPECT_GT(NumberBehind(log(3), resumed), NumberBehind(log(2), resumed));
  ASSERT_TRUE(AwaitFile(log(3), "stood still for")) << Output();
  EXPECT_GT(ProcessOf(run_, std::string("--rank\0001/3",
                                        sizeof("--rank\0001/3") - 1)),
            0);
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status.has_value()) << Output();
  EXPECT_TRUE(status->ok()) << Output();
  // every step that the learner counts has made one update of the variables
  const int64_t steps = NumberBehind(log(3), "ends at step ");
  EXPECT_GT(steps, NumberBehind(log(3), resumed));
  const HostTensor updates =
      SafetensorsReader(run_ / "checkpoints" /
                        fmt::format("step-{:012}", steps) /
                        "variables.safetensors")
          .Read("step");
  EXPECT_EQ(updates.Span<int64_t>()[0], steps);
}

}  // namespace
}  // namespace replicant
