// Replicas on CUDA devices learn as one replica does: on one device that they
// share, and on one each. Without a GPU (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/learner/workloads/d4pg_replicas.h"
#include "tests/support/fake_cuda/fake_backend.h"
#include "tests/support/fake_cuda/host_nccl.h"

namespace replicant::learner {
namespace {

using replicator::ReplicationConfig;
using replicator::Strategy;
using testing::FakeDriver;
using ::testing::IsEmpty;
using testing::NcclWorld;

class DevicesTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_THAT(driver_->problems(), IsEmpty());
    EXPECT_THAT(driver_->live(), IsEmpty());
  }

  // `devices` as in the configuration.
  D4pgRun Train(int replicas, std::vector<int> devices,
                bool reads_ahead = true) {
    const ReplicationConfig config{
        .strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
        .replicas = replicas,
        .backend = "cuda",
        .read_ahead = reads_ahead,
        .devices = std::move(devices)};
    return TrainD4pg(
        case_, config,
        [&](std::string_view /*name*/, const kernels::BackendOptions& options) {
          return testing::MakeFakeCudaBackend(
              driver_, testing::MakeHostNccl(world_), options.device_index);
        });
  }
  static void ExpectSameBits(const D4pgRun& a, const D4pgRun& b) {
    EXPECT_EQ(a.last, b.last);
    EXPECT_EQ(a.priorities, b.priorities);
  }

  const D4pgCase case_ = StateCase(DType::kF32);
  const std::shared_ptr<FakeDriver> driver_ =
      std::make_shared<FakeDriver>(testing::FakeDriverOptions{
          .num_devices = 4, .host_threads_are_ordered = true});
  const std::shared_ptr<NcclWorld> world_ =
      std::make_shared<NcclWorld>(driver_);
};

TEST_F(DevicesTest, D4pgOnAnyNumberOfReplicasAndDevicesLearnsAsOne) {
  const D4pgRun one = Train(1, {});
  ASSERT_EQ(one.num_steps, kReplicaSteps);
  for (const int replicas : {2, 4}) {
    const D4pgRun shared = Train(replicas, {0});
    CheckSameLearning(case_, one, shared);
    // both sum in the order of ranks here
    ExpectSameBits(Train(replicas, {}), shared);
  }
}

TEST_F(DevicesTest, TwoRunsOfD4pgOnReplicasGiveTheSameBits) {
  ExpectSameBits(Train(2, {1}), Train(2, {1}));
}

// catches a batch that overwrites the one that a step still reads
TEST_F(DevicesTest, ReadingAheadGivesTheSameBits) {
  ExpectSameBits(Train(1, {}, /*reads_ahead=*/false), Train(1, {}));
  ExpectSameBits(Train(2, {0}, /*reads_ahead=*/false), Train(2, {0}));
  ExpectSameBits(Train(2, {}, /*reads_ahead=*/false), Train(2, {}));
}

}  // namespace
}  // namespace replicant::learner
