// Trainings on replicas under MPI: their end, a stop, and a lost replica.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
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

// A process that stands still until the object's end kills it, so that a test
// that fails leaves none behind.
class Stopped {
 public:
  explicit Stopped(pid_t pid)
      : pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {
    Signal(SIGSTOP);
  }
  ~Stopped() {
    Signal(SIGKILL);
    ::close(pidfd_);
  }
  Stopped(const Stopped&) = delete;
  Stopped& operator=(const Stopped&) = delete;

  bool HasEnded() const {
    pollfd end{pidfd_, POLLIN, 0};
    return ::poll(&end, 1, 0) == 1;
  }

 private:
  void Signal(int signal) const {
    ::syscall(SYS_pidfd_send_signal, pidfd_, signal, nullptr, 0);
  }

  const int pidfd_;
};

// A process of a learner under MPI.
struct Replica {
  pid_t pid = 0;  // 0: none was found
  pid_t parent = 0;
  int incarnation = 0;  // of the learner
};

class TrainingMpiTest : public TrainingFixture {
 protected:
  std::filesystem::path LogOf(int incarnation) const {
    return run_ / "logs" / fmt::format("learner-0.{}.log", incarnation);
  }
  // The replica of a rank, once its learner has written a checkpoint.
  Replica AwaitReplica(int rank) const {
    Replica replica;
    const auto has_saved = [&] {
      replica = FindReplica(rank);
      return replica.pid > 0 &&
             Holds(LogOf(replica.incarnation), "stood still for");
    };
    return Await(has_saved) ? replica : Replica();
  }
  // Whether a learner after this one comes to continue from a checkpoint.
  bool AwaitNext(int incarnation) const {
    return Await([&] {
      for (int next = incarnation + 1; std::filesystem::exists(LogOf(next));
           ++next) {
        if (Holds(LogOf(next), "continues from the checkpoint of step")) {
          return true;
        }
      }
      return false;
    });
  }
  void ExpectEndsWell(Process& fleet) const {
    fleet.Signal(SIGTERM);
    const auto status = fleet.Wait(std::chrono::minutes(3));
    ASSERT_TRUE(status.has_value()) << Output();
    EXPECT_TRUE(status->ok()) << Output();
  }

 private:
  Replica FindReplica(int rank) const {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const auto contents = [&](const char* file) {
        std::ifstream in(entry.path() / file);
        return std::string{std::istreambuf_iterator<char>(in), {}};
      };
      // the number behind a name, of a process that has just ended 0
      const auto number = [&](const char* file, const std::string& name) {
        const std::string text = contents(file);
        const size_t at = text.find(name);
        return at == std::string::npos
                   ? 0
                   : std::atoi(text.c_str() + at + name.size());
      };
      if (contents("environ").find(fmt::format("OMPI_COMM_WORLD_RANK={}",
                                               rank)) != std::string::npos &&
          contents("cmdline").find(run_.string()) != std::string::npos) {
        return {.pid = std::stoi(entry.path().filename().string()),
                .parent = number("status", "PPid:\t"),
                .incarnation = number("environ", "REPLICANT_INCARNATION=")};
      }
    }
    return {};
  }
};

TEST_F(TrainingMpiTest, TrainsOnReplicasUnderMpiAndGoesOn) {
  ExpectTrainsAndGoesOn("{strategy: between_graph, replicas: 2}");
}

TEST_F(TrainingMpiTest, AStopReachesReplicasUnderMpi) {
  Process fleet = StartReplicas();
  const auto log = run_ / "logs" / "learner-0.1.log";
  // it has learned something
  ASSERT_TRUE(AwaitFile(log, "stood still for")) << Output();
  ExpectEndsWell(fleet);
  // with a checkpoint of the last step
  std::smatch end;
  const std::string text = ReadFile(log);
  ASSERT_TRUE(std::regex_search(text, end, std::regex("ends at step (\\d+)")))
      << text;
  EXPECT_TRUE(std::filesystem::exists(
      run_ / "checkpoints" / fmt::format("step-{:012}", std::stoll(end[1]))))
      << Output();
}

TEST_F(TrainingMpiTest, AReplicaThatIsKilledEndsTheGroupWhichThenGoesOn) {
  Process fleet = StartReplicas();
  const Replica replica = AwaitReplica(1);
  ASSERT_GT(replica.pid, 0) << Output();
  ::kill(replica.pid, SIGKILL);
  ASSERT_TRUE(AwaitNext(replica.incarnation)) << Output();
  // who it was; some versions break the line
  EXPECT_THAT(ReadFile(LogOf(replica.incarnation)),
              ContainsRegex("process rank 1 with PID [0-9]+ on "
                            "node [^ ]+ exited on\\s+signal 9"));
  ExpectEndsWell(fleet);
}

TEST_F(TrainingMpiTest, AReplicaThatStandsStillEndsTheGroupWhichThenGoesOn) {
  Process fleet = StartReplicas(/*heartbeat_timeout_s=*/10.0);
  // the second one, and then the first one of those that were started again
  for (const int rank : {1, 0}) {
    const Replica replica = AwaitReplica(rank);
    ASSERT_GT(replica.pid, 0) << Output();
    const Stopped stopped(replica.pid);
    ASSERT_TRUE(AwaitNext(replica.incarnation)) << Output();
    EXPECT_THAT(ReadFile(LogOf(replica.incarnation)),
                ContainsRegex(fmt::format(
                    "rank {} of 2 ends: rank {} of 2 \\([^ ]+\\) was not heard "
                    "of for 10 s; waited for in call [0-9]+, ",
                    1 - rank, rank)));
  }
  ExpectEndsWell(fleet);
}

// As when the fleet kills a learner whose first replica stands still. Would
// catch a replica that outlives mpirun and holds the addresses of the next
// learner.
TEST_F(TrainingMpiTest, AReplicaThatStandsStillEndsWithMpirun) {
  Process fleet = StartReplicas(/*heartbeat_timeout_s=*/0.0);
  const Replica replica = AwaitReplica(0);
  ASSERT_GT(replica.pid, 0) << Output();
  ASSERT_GT(replica.parent, 1);
  const Stopped stopped(replica.pid);
  ::kill(replica.parent, SIGKILL);
  EXPECT_TRUE(Await([&] { return stopped.HasEnded(); }));
  ASSERT_TRUE(AwaitNext(replica.incarnation)) << Output();
  ExpectEndsWell(fleet);
}

}  // namespace
}  // namespace replicant
