// Replicas on CUDA devices learn as one replica does: on one device that they
// share, and on one each. Without a GPU (tests/support/fake_cuda).
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/learner/workloads/d4pg_replicas.h"
#include "tests/learner/workloads/fake_devices.h"

namespace replicant::learner {
namespace {

class DevicesTest : public FakeDevicesTest {
 protected:
  // `devices` as in the configuration.
  D4pgRun Train(int replicas, std::vector<int> devices,
                bool reads_ahead = true) {
    replicator::ReplicationConfig config = On(replicas, std::move(devices));
    config.read_ahead = reads_ahead;
    return TrainD4pg(case_, config, MakeBackends());
  }
  static void ExpectSameBits(const D4pgRun& a, const D4pgRun& b) {
    EXPECT_EQ(a.last, b.last);
    EXPECT_EQ(a.priorities, b.priorities);
  }

  const D4pgCase case_ = StateCase(DType::kF32);
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

TEST_F(DevicesTest, D4pgFromPixelsLearnsAsTheReference) {
  const D4pgCase pixels = PixelCase(DType::kF32);
  const D4pgRun reference = TrainD4pg(pixels, {.backend = "reference"});
  for (const auto& config : {On(1, {}), On(2, {}), On(4, {0})}) {
    SCOPED_TRACE(config.replicas);
    CheckSameLearning(pixels, reference,
                      TrainD4pg(pixels, config, MakeBackends()));
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
