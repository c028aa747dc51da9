// Frames that lie in a device's memory: the bits of batches with pixels, and
// the order of what is sent and read. Without a GPU (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/graph/ops/image.h"
#include "engine/runtime/executor.h"
#include "learner/workloads/agent/agent_workload.h"
#include "tests/learner/workloads/fake_devices.h"
#include "tests/learner/workloads/resident_training.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

class ResidentDevicesTest : public FakeDevicesTest {};

// with graphs, and batches that are taken while a step computes
TEST_F(ResidentDevicesTest, ATableOfFramesChangesNoBit) {
  for (const StoredCase& c :
       {StoredCase{.num_services = 3, .kept_frames = 150},
        StoredCase{.window = 4, .num_images = 2, .resident_frames = 90}}) {
    CheckResidentIsTheSame(c, NumDraws(12), On(1, {}), MakeBackends());
  }
}

TEST_F(ResidentDevicesTest, NeitherDoReadingAheadAndGraphs) {
  const StoredCase c{.resident_frames = 90};
  const StoredRun run =
      TrainStored(c, 12, /*is_resident=*/true, On(1, {}), MakeBackends());
  for (const bool has_graphs : {false, true}) {
    replicator::ReplicationConfig config = On(1, {});
    config.read_ahead = false;
    config.cuda_graphs = has_graphs;
    const StoredRun other =
        TrainStored(c, 12, /*is_resident=*/true, config, MakeBackends());
    EXPECT_EQ(run.priorities, other.priorities);
    EXPECT_EQ(run.last, other.last);
  }
}

// A whole workload, by the key of the frame store.
TEST_F(ResidentDevicesTest, AWorkloadKeepsItsFramesOnTheDevice) {
  const StoredCase c;
  std::vector<Variables> last;
  for (const int64_t max_bytes : {0, 100'000}) {
    StoredTransitions source(c);
    LearnerConfig learner{.batch_size = kStoredBatch};
    learner.frame_store.max_bytes = max_bytes;
    learner.replication = On(1, {});
    AgentWorkload workload(
        agents::d4pg::MakeAgent(c.agent()),
        {.learner = learner,
         .seed = kReplicaSeed,
         .replicator = replicator::MakeReplicator(
             learner.replication, kReplicaSeed, /*rank=*/{}, MakeBackends()),
         .spec = c.spec(),
         .source = &source});
    for (int i = 0; i < 9; ++i) {
      ASSERT_EQ(workload.Step({}), NextResult::kOk);
    }
    last.push_back(ValuesOf(workload.variables()));
    const auto sent = [&] {
      for (const auto& [name, value] : workload.Scalars()) {
        if (name == "frame_store_sent_frames") return value;
      }
      return 0.0;
    }();
    if (max_bytes == 0) {
      EXPECT_EQ(sent, 0.0);
    } else {
      EXPECT_GT(sent, 10.0);
    }
  }
  EXPECT_EQ(last[0], last[1]);
}

constexpr int64_t kFrameBytes = 6;  // two pixels
constexpr int64_t kFrames = 4;      // of a batch

// A plan that reads the frames of a table of six, and the spare ones.
class ResidentPlan {
 public:
  explicit ResidentPlan(const std::shared_ptr<testing::FakeDriver>& driver)
      : backend_(testing::MakeFakeCudaBackend(driver)),
        store_(*backend_, /*seed=*/1),
        frames_(*backend_, {.frame_bytes = kFrameBytes,
                            .max_bytes = 6 * kFrameBytes,
                            .frames_per_batch = kFrames}) {
    graph::Graph g;
    const graph::Output table =
        g.Input("table", DType::kU8, frames_.type().shape);
    const graph::Output slots = g.Input("slots", DType::kI32, Shape({kFrames}));
    plan_ = std::make_unique<runtime::Executor>(
        g,
        runtime::PlanSpec{.outputs = {graph::GatherStacks(
                              table, slots, {.pixels = 2, .channels = 3})}},
        store_, runtime::CompileOptions{.residents = {{"table", &frames_}}});
  }

  kernels::Backend& backend() { return *backend_; }
  ResidentFrames& frames() { return frames_; }
  runtime::Executor& plan() { return *plan_; }

  // The slot of the frame of this number; below 0: one that is not kept.
  int32_t SlotOf(int number) {
    const std::vector<std::byte> frame(kFrameBytes,
                                       static_cast<std::byte>(number));
    return frames_.SlotOf(static_cast<uint64_t>(std::max(0, number)),
                          frame.data());
  }
  // Fills the plan's input with a batch.
  void Fill(const std::vector<int>& numbers) {
    frames_.BeginBatch();
    std::ranges::transform(numbers,
                           plan_->input("slots").Span<int32_t>().begin(),
                           [this](int number) { return SlotOf(number); });
  }
  // The numbers of the frames that the last run has read.
  std::vector<int> Read() const {
    const std::span y = plan_->output(0).Span<uint8_t>();
    std::vector<int> numbers;
    for (size_t i = 0; i < kFrames; ++i) {
      numbers.push_back(static_cast<int8_t>(y[3 * i]));
    }
    return numbers;
  }

 private:
  const std::unique_ptr<kernels::Backend> backend_;
  runtime::VariableStore store_;
  ResidentFrames frames_;
  std::unique_ptr<runtime::Executor> plan_;
};

class ResidentPlanTest : public FakeDevicesTest {
 protected:
  // The calls of a run, without those that make the context current.
  std::vector<std::string> CallsOfRun(ResidentPlan& plan) const {
    const auto begin = static_cast<int64_t>(driver_->calls().size());
    plan.plan().Run();
    std::vector<std::string> calls = driver_->calls();
    calls.erase(calls.begin(), calls.begin() + begin);
    std::erase(calls, "cuCtxSetCurrent");
    return calls;
  }
};

TEST_F(ResidentPlanTest, OnlySlotsTravelOnceTheFramesAreThere) {
  ResidentPlan plan(driver_);
  for (int i = 0; i < 3; ++i) {
    plan.Fill({1, 2, 3, 1});
    plan.plan().Run();
    EXPECT_THAT(plan.Read(), ElementsAre(1, 2, 3, 1));
  }
  plan.Fill({3, 2, 1, 1});
  EXPECT_THAT(CallsOfRun(plan),
              ElementsAre("cuStreamWaitEvent", "cuMemcpyHtoDAsync",
                          "cuEventRecord", "cuStreamWaitEvent",
                          "cuMemcpyDtoDAsync", "cuEventRecord", "cuGraphLaunch",
                          "cuEventSynchronize", "cuStreamSynchronize"));
  EXPECT_THAT(plan.Read(), ElementsAre(3, 2, 1, 1));
  // new frames come in one copy before the launch, those not kept in another
  plan.Fill({4, -1, 5, 1});
  EXPECT_THAT(
      CallsOfRun(plan),
      ElementsAre("cuStreamWaitEvent", "cuMemcpyHtoDAsync", "cuEventRecord",
                  "cuStreamWaitEvent", "cuMemcpyDtoDAsync", "cuEventRecord",
                  "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync", "cuEventRecord",
                  "cuGraphLaunch", "cuEventSynchronize",
                  "cuStreamSynchronize"));
  EXPECT_THAT(plan.Read(), ElementsAre(4, -1, 5, 1));
}

// The next batch takes the slots of the one whose step runs.
TEST_F(ResidentPlanTest, ARunningStepReadsItsFramesBeforeTheirSlotsAreTaken) {
  ResidentPlan plan(driver_);
  std::vector<int> now = {1, 2, 3, -1};
  plan.Fill(now);
  for (int run = 1; run < 8; ++run) {
    plan.plan().Start();
    const std::vector<int> next = {4 * run, 4 * run + 1, -4 * run, 4 * run + 2};
    plan.Fill(next);
    plan.plan().SendInputs();
    plan.plan().Wait();
    EXPECT_EQ(plan.Read(), now) << run;
    now = next;
  }
  EXPECT_EQ(plan.frames().num_sent(), 4 * 7);
}

// What the driver would tell of the test before, if the frames were sent on
// another stream.
TEST_F(ResidentPlanTest, ASlotThatIsTakenTooEarlyIsFound) {
  const auto driver = std::make_shared<testing::FakeDriver>();
  ResidentPlan plan(driver);
  plan.Fill({1, 2, 3, 4});
  plan.plan().Start();
  plan.Fill({5, 6, 7, 8});
  EXPECT_THAT(driver->problems(), IsEmpty());
  const auto other = plan.backend().CreateStream();
  plan.frames().Update(*other);
  EXPECT_THAT(driver->problems(), Not(IsEmpty()));
  plan.plan().Wait();
  other->Synchronize();
}

using ResidentPlanDeathTest = ResidentPlanTest;

// catches a batch that does not wait for what travels
TEST_F(ResidentPlanDeathTest, AFrameThatTravelsMayNotBeWritten) {
  ResidentPlan plan(driver_);
  plan.Fill({1, 2, 3, 4});
  plan.plan().Start();
  EXPECT_DEATH(plan.SlotOf(9), "");
  plan.plan().Wait();
}

TEST_F(ResidentPlanTest, AFailedCopyIsAnErrorAndItsFramesAreForgotten) {
  ResidentPlan plan(driver_);
  plan.Fill({1, 2, 3, -1});
  plan.plan().SendInputs();
  driver_->FailNext("cuMemcpyHtoDAsync", /*device=*/0, CUDA_ERROR_NOT_READY);
  EXPECT_THROW(plan.plan().Start(), DeviceError);
  plan.Fill({1, 2, 3, 4});
  plan.plan().Run();
  EXPECT_THAT(plan.Read(), ElementsAre(1, 2, 3, 4));
}

TEST(ResidentMemoryTest, ATableThatDoesNotFitNamesItsKey) {
  const auto driver = std::make_shared<testing::FakeDriver>(
      testing::FakeDriverOptions{.memory_size_bytes = 1 << 20});
  const auto backend = testing::MakeFakeCudaBackend(driver);
  EXPECT_THAT(testing::MessageOf([&] {
                ResidentFrames(*backend, {.frame_bytes = 1 << 10,
                                          .max_bytes = 1 << 21,
                                          .frames_per_batch = 1});
              }),
              ::testing::EndsWith("it was to hold the frames of "
                                  "learner.frame_store.max_bytes, 2097152"));
}

}  // namespace
}  // namespace replicant::learner
