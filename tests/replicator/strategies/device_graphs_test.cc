// A step of replicas with a device each is one CUDA graph on each device, with
// NCCL's calls in it. Without a GPU (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "replicator/make_replicator.h"
#include "tests/replicator/strategies/device_cases.h"

namespace replicant::replicator {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MessageOf;
using ::testing::SizeIs;
using ::testing::StartsWith;

// The calls of `work` on each device, without those that make the context
// current.
template <typename Work>
std::vector<std::vector<std::string>> CallsOf(FakeDriver& driver,
                                              int num_devices,
                                              const Work& work) {
  std::vector<size_t> begin;
  begin.reserve(static_cast<size_t>(num_devices));
  for (int device = 0; device < num_devices; ++device) {
    begin.push_back(driver.calls_on(device).size());
  }
  work();
  std::vector<std::vector<std::string>> calls;
  for (int device = 0; device < num_devices; ++device) {
    std::vector<std::string> own = driver.calls_on(device);
    own.erase(own.begin(),
              own.begin() + static_cast<int64_t>(begin[calls.size()]));
    std::erase(own, "cuCtxSetCurrent");
    calls.push_back(std::move(own));
  }
  return calls;
}

// Hands over the batch, launches, and waits.
auto IsOneLaunch() {
  return ElementsAre("cuStreamWaitEvent", "cuMemcpyHtoDAsync", "cuEventRecord",
                     "cuStreamWaitEvent", "cuMemcpyDtoDAsync", "cuEventRecord",
                     "cuGraphLaunch", "cuEventSynchronize",
                     "cuStreamSynchronize");
}

// A run, whose third step is the first that launches graphs only.
struct Training {
  Training(const ReplicationConfig& config, const BackendFactory& backends,
           int process = 0)
      : replicator(
            MakeReplicator(config, /*seed=*/1, {.index = process}, backends)),
        input(replicator->MakeInput(MakeRows)),
        step(replicator->Build(*input, EveryCall)) {}

  // Makes `count` steps.
  void Step(int count) const {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    }
  }
  std::string MessageOfStep() const {
    return MessageOf([&] { static_cast<void>(step->Run(kNoWait)); });
  }

  std::unique_ptr<Replicator> replicator;
  std::unique_ptr<Input> input;
  std::unique_ptr<replicator::Step> step;
};

TEST(DeviceGraphsTest, AStepIsOneLaunchOnEachDevice) {
  for (const int devices : {2, 4}) {
    Machine machine(devices);
    const Training run(InGraph(devices, {}), machine.Backends());
    run.Step(2);
    const size_t before = machine.CountLaunches("ncclAllReduce");
    EXPECT_THAT(CallsOf(machine.driver(), devices, [&] { run.Step(1); }),
                AllOf(SizeIs(devices), Each(IsOneLaunch())));
    // with the calls of the steps before
    EXPECT_EQ(machine.CountLaunches("ncclAllReduce"), before + before / 2);
  }
}

TEST(DeviceGraphsTest, AStepOfTwoProcessesIsOneLaunchOnEachDevice) {
  Machine machine(2);
  const TemporaryFolder folder;
  const ReplicationConfig config = BetweenGraph(InGraph(2, {}), folder);
  std::vector<std::vector<std::string>> calls;
  std::thread second([&] {
    const Training run(config, machine.Backends(), /*process=*/1);
    run.Step(3);
  });
  {
    const Training run(config, machine.Backends(), /*process=*/0);
    run.Step(2);
    calls = CallsOf(machine.driver(), 1, [&] { run.Step(1); });
    second.join();
  }
  EXPECT_THAT(calls, ElementsAre(IsOneLaunch()));
}

TEST(DeviceGraphsTest, GraphsGiveTheBitsOfSingleLaunches) {
  for (const int replicas : {2, 4}) {
    for (const DType wire : {DType::kF32, DType::kBF16}) {
      Machine machine(replicas);
      ReplicationConfig config = InGraph(replicas, {});
      config.gradient_format = wire;
      const Results graphs = Train(config, machine.Backends());
      EXPECT_NE(machine.CountCalls("cuGraphLaunch"), 0);
      config.cuda_graphs = false;
      const auto num_graphs = machine.CountCalls("cuGraphLaunch");
      ExpectSame(Train(config, machine.Backends()), graphs);
      EXPECT_EQ(machine.CountCalls("cuGraphLaunch"), num_graphs);
    }
  }
}

// The host makes the calls of gradients with top_k, next to NCCL's calls:
// catches a graph that swallows its work.
TEST(DeviceGraphsTest, CallsOfTheHostInBetweenGiveTheSameBits) {
  Machine machine(2);
  ReplicationConfig config = InGraph(2, {});
  config.top_k = 0.5;
  const Results graphs = Train(config, machine.Backends());
  EXPECT_NE(machine.CountCalls("cuGraphLaunch"), 0);
  config.cuda_graphs = false;
  ExpectSame(Train(config, machine.Backends()), graphs);
}

// The others wait within their graphs.
TEST(DeviceGraphsTest, AReplicaThatDoesNotLaunchEndsTheOthers) {
  Machine machine(4);
  const Training run(InGraph(4, {}), machine.Backends());
  run.Step(2);
  machine.driver().FailNext("cuGraphLaunch", /*device=*/2, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(run.MessageOfStep(),
            "cuda:2: cuGraphLaunch: CUDA_ERROR_UNKNOWN: unknown error");
  EXPECT_THAT(machine.world().AwaitAborts(4), ElementsAre(0, 1, 2, 3));
  // and does not come back
  EXPECT_THAT(run.MessageOfStep(), HasSubstr("replica 2: cuda:2"));
}

// A capture that fails: the others have theirs.
TEST(DeviceGraphsTest, AReplicaThatDoesNotRecordEndsTheOthers) {
  for (const char* call : {"cuStreamBeginCapture", "ncclAllReduce",
                           "cuStreamEndCapture", "cuGraphInstantiate"}) {
    Machine machine(2);
    const Training run(InGraph(2, {}), machine.Backends());
    run.Step(1);
    machine.driver().FailNext(call, /*device=*/1, CUDA_ERROR_UNKNOWN);
    EXPECT_EQ(run.MessageOfStep(), std::string("cuda:1: ") + call +
                                       ": CUDA_ERROR_UNKNOWN: unknown error");
  }
}

// A device whose call does not reach the others, which no host sees.
TEST(DeviceGraphsTest, ARankThatDoesNotComeEndsTheStepByItsDeadline) {
  Machine machine(2);
  ReplicationConfig config = InGraph(2, {});
  config.timeout_s = 5.0;
  const Training run(config, machine.Backends());
  run.Step(2);
  machine.world().CutOff(1);
  EXPECT_THAT(run.MessageOfStep(),
              AllOf(StartsWith("nccl, rank "),
                    HasSubstr("waited 5 s for the others; the last call "
                              "launched is call ")));
  EXPECT_THAT(machine.world().AwaitAborts(2), ElementsAre(0, 1));
}

// An error that the library reports while ranks wait within their graphs.
TEST(DeviceGraphsTest, AFailureOfTheLibraryNamesTheRankAndEndsAll) {
  Machine machine(2);
  const Training run(InGraph(2, {}), machine.Backends());
  run.Step(2);
  machine.world().CutOff(1);
  machine.world().FailRank(1, "remote error: connection closed");
  EXPECT_THAT(run.MessageOfStep(),
              AllOf(HasSubstr("rank 1 of 2 (cuda:1)"),
                    HasSubstr("remote error: connection closed")));
}

// A process whose device fails ends the other one, which waits in its graph.
TEST(DeviceGraphsTest, AProcessThatDoesNotLaunchEndsTheOther) {
  Machine machine(2);
  const TemporaryFolder folder;
  const ReplicationConfig config = BetweenGraph(InGraph(2, {}), folder);
  std::vector<std::string> messages(2);
  std::vector<std::thread> threads;
  threads.reserve(2);
  for (int process = 0; process < 2; ++process) {
    threads.emplace_back([&, process] {
      const Training run(config, machine.Backends(), process);
      run.Step(2);
      if (process == 1) {
        machine.driver().FailNext("cuGraphLaunch", /*device=*/1,
                                  CUDA_ERROR_UNKNOWN);
      }
      messages[static_cast<size_t>(process)] = run.MessageOfStep();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(messages[0], HasSubstr("cuda:1: cuGraphLaunch"));
  EXPECT_EQ(messages[1],
            "cuda:1: cuGraphLaunch: CUDA_ERROR_UNKNOWN: unknown error");
}

}  // namespace
}  // namespace replicant::replicator
