// Replicas on CUDA devices exchange tensors on the devices: by NCCL, or by a
// kernel where they share one. Without a GPU (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "replicator/calls/device_communicator.h"
#include "replicator/comm/thread_communicator.h"
#include "replicator/make_replicator.h"
#include "replicator/steps/device_team.h"
#include "tests/replicator/strategies/device_cases.h"

namespace replicant::replicator {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::MessageOf;
using ::testing::Not;
using ::testing::StartsWith;

// The host's collectives are the model: all reduce in rank order.
TEST(DeviceCollectivesTest, OneDeviceGivesTheBitsOfTheHost) {
  for (const int replicas : {2, 3, 4}) {
    Machine machine(1);
    const Results host =
        Train(InGraph(replicas, {0}, Collectives::kHost), machine.Backends());
    EXPECT_EQ(machine.CountLaunches("combine_replicas_f32"), 0U);
    const Results device = Train(InGraph(replicas, {0}), machine.Backends());
    ExpectSame(device, host);
    EXPECT_GT(machine.CountLaunches("combine_replicas_f32"), 0U);
    // no NCCL, which refuses replicas on one device
    EXPECT_EQ(machine.CountLaunches("ncclAllReduce"), 0U);
    // again, to the bit
    ExpectSame(Train(InGraph(replicas, {0}), machine.Backends()), device);
  }
}

TEST(DeviceCollectivesTest, SeveralDevicesGiveTheBitsOfTheHost) {
  for (const int replicas : {2, 4}) {
    Machine machine(replicas);
    const Results host =
        Train(InGraph(replicas, {}, Collectives::kHost), machine.Backends());
    EXPECT_EQ(machine.CountLaunches("ncclAllReduce"), 0U);
    ExpectSame(Train(InGraph(replicas, {}), machine.Backends()), host);
    for (const char* call : {"ncclAllReduce", "ncclAllGather",
                             "ncclReduceScatter", "ncclBroadcast"}) {
      EXPECT_GT(machine.CountLaunches(call), 0U) << call;
    }
    EXPECT_EQ(machine.CountLaunches("combine_replicas_f32"), 0U);
    EXPECT_EQ(machine.world().num_leaving(), replicas);
  }
}

TEST(DeviceCollectivesTest, GradientsOfBf16HaveTheBitsOfTheHost) {
  Machine machine(1);
  ReplicationConfig config = InGraph(3, {0}, Collectives::kHost);
  config.gradient_format = DType::kBF16;
  const Results host = Train(config, machine.Backends());
  config.collectives = Collectives::kDevice;
  ExpectSame(Train(config, machine.Backends()), host);
  EXPECT_GT(machine.CountLaunches("pack_bucket_f32_bf16"), 0U);
}

// Gradients do not leave the device: a step copies to the host what is fetched,
// which is recorded once, and nothing else.
TEST(DeviceCollectivesTest, NoCallPassesThroughTheHost) {
  const auto count_copies = [](Collectives collectives) {
    Machine machine(2);
    Train(InGraph(2, {}, collectives), machine.Backends());
    const auto calls = machine.driver().calls();
    return std::count(calls.begin(), calls.end(), "cuMemcpyDtoHAsync");
  };
  // 2 replicas, 5 steps; a call through the host copies in each of them, and
  // there are at least 9
  EXPECT_LT(count_copies(Collectives::kDevice), 2 * 5);
  EXPECT_GE(count_copies(Collectives::kHost), 2 * 5 * 9);
}

// Each process with a separate device, over TCP.
TEST(DeviceCollectivesTest, ProcessesGiveTheBitsOfOneProcess) {
  Machine machine(2);
  const Results one = Train(InGraph(2, {}), machine.Backends());
  const TemporaryFolder folder;
  const ReplicationConfig config = BetweenGraph(InGraph(2, {}), folder);
  const size_t before = machine.CountLaunches("ncclAllReduce");
  std::thread second([&] { Train(config, machine.Backends(), /*process=*/1); });
  const Results first = Train(config, machine.Backends(), /*process=*/0);
  second.join();
  // ranks of one step, and steps
  EXPECT_EQ(machine.CountLaunches("ncclAllReduce"), 2 * before);
  ExpectSame(first, one);
}

TEST(DeviceCollectivesTest, AMissingLibrarySaysWhatToDo) {
  Machine machine(2);
  const std::string missing = "cannot load libnccl.so.2: no such file";
  EXPECT_EQ(MessageOf<DeviceError>([&] {
              Train(InGraph(2, {}), machine.Backends({.missing = missing}));
            }),
            "cuda:0: " + missing);
  // of one process: all say it
  const auto messages =
      MessagesOf(InGraph(2, {}),
                 {machine.Backends(), machine.Backends({.missing = missing})});
  EXPECT_EQ(messages[0], "process 1: cuda:1: " + missing);
  EXPECT_EQ(messages[1], "cuda:1: " + missing);
}

TEST(DeviceCollectivesTest, DifferentLibrariesAreRefused) {
  Machine machine(2);
  for (const std::string& message : MessagesOf(
           InGraph(2, {}),
           {machine.Backends(), machine.Backends({.version = "2.27.3"})})) {
    EXPECT_EQ(message,
              "process 0 has NCCL 2.28.9, process 1 has NCCL 2.27.3; hint: "
              "install the same on all hosts, or set "
              "learner.replication.collectives: host");
  }
}

TEST(DeviceCollectivesTest, LayoutsThatNoLibraryTakesAreRefused) {
  Machine machine(2);
  const std::string refusal =
      "; allowed: each on a device of its own, or all of one process on one; "
      "hint: set learner.replication.devices, or collectives: host";
  EXPECT_EQ(MessageOf<ConfigError>([&] {
              Train(InGraph(4, {0, 1}), machine.Backends());
            }),
            "replication: replicas 0 and 2 of 4 are on one device" + refusal);
  // two processes
  for (const std::string& message :
       MessagesOf(InGraph(2, {0}), {machine.Backends(), machine.Backends()})) {
    EXPECT_EQ(message,
              "replication: replicas 0 and 1 of 2 are on one device" + refusal);
  }
  EXPECT_THAT(MessageOf<DeviceError>(
                  [&] { Train(InGraph(3, {}), machine.Backends()); }),
              StartsWith("cuda:2: no such device; this machine has cuda:0 to "
                         "cuda:1"));
}

TEST(DeviceCollectivesTest, AFailureOfTheLibraryNamesTheRankAndEndsAll) {
  Machine machine(2);
  const auto replicator =
      MakeReplicator(InGraph(2, {}), /*seed=*/1, {}, machine.Backends());
  const auto input = replicator->MakeInput(MakeRows);
  const auto step = replicator->Build(*input, EveryCall);
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  machine.world().FailRank(1, "remote error: connection closed");
  EXPECT_THAT(
      MessageOf<CommError>([&] { static_cast<void>(step->Run(kNoWait)); }),
      AllOf(HasSubstr("rank 1 of 2 (cuda:1)"),
            HasSubstr("remote error: connection closed")));
  EXPECT_THAT(machine.world().AwaitAborts(2), ::testing::ElementsAre(0, 1));
  // and does not come back
  EXPECT_THAT(
      MessageOf<CommError>([&] { static_cast<void>(step->Run(kNoWait)); }),
      HasSubstr("remote error: connection closed"));
}

// A replica that fails on its own lets no other wait for it.
TEST(DeviceCollectivesTest, AReplicaThatFailsEndsTheOthers) {
  for (const int num_devices : {1, 2}) {
    Machine machine(num_devices);
    std::vector<int> devices;
    if (num_devices == 1) devices = {0};
    const auto replicator =
        MakeReplicator(InGraph(2, devices), /*seed=*/1, {}, machine.Backends());
    const auto input = replicator->MakeInput(MakeRows);
    const auto step = replicator->Build(*input, EveryCall);
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    machine.driver().FailCall(machine.driver().calls().size() + 40,
                              CUDA_ERROR_UNKNOWN);
    EXPECT_THAT(MessageOf([&] { static_cast<void>(step->Run(kNoWait)); }),
                AllOf(HasSubstr("cuda:"), HasSubstr("CUDA_ERROR_UNKNOWN")));
  }
}

// A device that waits for a replica that is gone: its step does not end.
TEST(DeviceCollectivesTest, AStepThatDoesNotEndIsAborted) {
  Machine machine(2);
  const auto hosts = comm::MakeThreadCommunicators(2);
  std::vector<std::unique_ptr<kernels::Backend>> backends;
  std::vector<DeviceTeam::Member> members;
  for (int i = 0; i < 2; ++i) {
    backends.push_back(machine.Backends()("cuda", {.device_index = i}));
    members.push_back(
        {backends.back().get(), hosts[static_cast<size_t>(i)].get()});
  }
  Processes one(nullptr);
  auto team = DeviceTeam::Connect(members, one,
                                  {.timeout = std::chrono::milliseconds(50)});
  ASSERT_NE(team, nullptr);
  EXPECT_EQ(
      MessageOf<CommError>([&] {
        team->Run(0, [&] {
          while (team->of(0).failure().empty()) std::this_thread::yield();
        });
      }),
      "nccl, rank 0 of 2 (cuda:0): waited 0.05 s for the others; the last "
      "call launched is call 0, join");
  EXPECT_THAT(machine.world().AwaitAborts(2), ::testing::ElementsAre(0, 1));
  // the other processes hear of it by the host, a moment later
  team.reset();
  EXPECT_THAT(hosts[1]->Failure(), HasSubstr("waited 0.05 s"));
}

// A process that never comes: its rank is missed before the first step.
TEST(DeviceCollectivesTest, ARankThatNeverJoinsEndsTheWait) {
  Machine machine(2);
  auto communicators = comm::MakeThreadCommunicators(2);
  const auto backend = machine.Backends()("cuda", {.device_index = 1});
  const std::string group = backend->collectives()->NewGroup();
  const auto communicator =
      MakeLibraryCommunicator(*backend, group, communicators[1].get(),
                              {.timeout = std::chrono::milliseconds(50)});
  EXPECT_EQ(MessageOf<CommError>([&] { communicator->AwaitOthers(); }),
            "nccl, rank 1 of 2 (cuda:1): waited 0.05 s for the others in "
            "call 0, join");
  // heartbeats find it sooner
  const auto another = MakeLibraryCommunicator(
      *backend, backend->collectives()->NewGroup(), communicators[1].get(),
      {.timeout = std::chrono::hours(1)});
  communicators[0]->Abort("rank 0 is gone");
  EXPECT_EQ(MessageOf<CommError>([&] { another->AwaitOthers(); }),
            "nccl, rank 1 of 2 (cuda:1): rank 0 is gone");
}

}  // namespace
}  // namespace replicant::replicator
