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

#include "core/base/fs.h"
#include "core/base/process.h"
#include "tests/programs/training_fixture.h"

namespace replicant {
namespace {

using ::testing::ContainsRegex;

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
                        "goes on from the checkpoint of step"))
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

}  // namespace
}  // namespace replicant
