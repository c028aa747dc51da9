// Trainings on replicas under MPI: their end, a stop, and a lost replica.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>

#include "base/fs.h"
#include "base/process.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::ContainsRegex;

class TrainingMpiTest : public TrainingFixture {};

TEST_F(TrainingMpiTest, TrainsOnReplicasUnderMpiAndGoesOn) {
  ExpectTrainsAndGoesOn("{strategy: between_graph, replicas: 2}");
}

TEST_F(TrainingMpiTest, AStopReachesReplicasUnderMpi) {
  Process fleet = StartReplicas();
  const auto log = run_ / "logs" / "learner-0.1.log";
  // it has learned something
  ASSERT_TRUE(AwaitFile(log, "stood still for")) << Output();
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status.has_value()) << Output();
  EXPECT_TRUE(status->ok()) << Output();
  // with a checkpoint of the last step
  std::smatch end;
  const std::string text = ReadFile(log);
  ASSERT_TRUE(std::regex_search(text, end, std::regex("ends at step (\\d+)")))
      << text;
  EXPECT_TRUE(std::filesystem::exists(
      run_ / "checkpoints" / fmt::format("step-{:012}", std::stoll(end[1]))))
      << Output();
}

// The process of a rank of a run's learner.
pid_t ReplicaOf(const std::filesystem::path& run, int rank) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const auto holds = [&](const char* file, const std::string& text) {
      std::ifstream in(entry.path() / file);
      const std::string all{std::istreambuf_iterator<char>(in), {}};
      return all.find(text) != std::string::npos;
    };
    if (holds("environ", fmt::format("OMPI_COMM_WORLD_RANK={}", rank)) &&
        holds("cmdline", run.string())) {
      return std::stoi(entry.path().filename().string());
    }
  }
  return 0;
}

TEST_F(TrainingMpiTest, AReplicaThatIsKilledEndsTheGroupWhichThenGoesOn) {
  Process fleet = StartReplicas();
  const auto log = run_ / "logs" / "learner-0.1.log";
  ASSERT_TRUE(AwaitFile(log, "stood still for")) << Output();
  const pid_t replica = ReplicaOf(run_, 1);
  ASSERT_GT(replica, 0);
  ::kill(replica, SIGKILL);
  ASSERT_TRUE(AwaitFile(run_ / "logs" / "learner-0.2.log",
                        "continues from the checkpoint of step"))
      << Output();
  // who it was; some versions break the line
  EXPECT_THAT(ReadFile(log), ContainsRegex("process rank 1 with PID [0-9]+ on "
                                           "node [^ ]+ exited on\\s+signal 9"));
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status.has_value()) << Output();
  EXPECT_TRUE(status->ok()) << Output();
}

TEST_F(TrainingMpiTest, AReplicaThatStandsStillEndsTheGroupWhichThenGoesOn) {
  Process fleet = StartReplicas(/*heartbeat_timeout_s=*/2.0);
  // the second one, and then the first one of those that were started again
  for (const int rank : {1, 0}) {
    const int incarnation = 2 - rank;
    const auto log_of = [&](int number) {
      return run_ / "logs" / fmt::format("learner-0.{}.log", number);
    };
    ASSERT_TRUE(AwaitFile(log_of(incarnation), "stood still for")) << Output();
    const pid_t replica = ReplicaOf(run_, rank);
    ASSERT_GT(replica, 0);
    ::kill(replica, SIGSTOP);
    ASSERT_TRUE(AwaitFile(log_of(incarnation + 1),
                          "continues from the checkpoint of step"))
        << Output();
    EXPECT_THAT(ReadFile(log_of(incarnation)),
                ContainsRegex(fmt::format(
                    "rank {} of 2 ends: rank {} of 2 \\([^ ]+\\) was not heard "
                    "of for 2 s; waited for in call [0-9]+, ",
                    1 - rank, rank)));
  }
  fleet.Signal(SIGTERM);
  const auto status = fleet.Wait(std::chrono::minutes(3));
  ASSERT_TRUE(status.has_value()) << Output();
  EXPECT_TRUE(status->ok()) << Output();
}

}  // namespace
}  // namespace replicant
