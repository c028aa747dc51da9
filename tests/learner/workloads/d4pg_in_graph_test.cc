#include <gtest/gtest.h>

#include "tests/learner/workloads/d4pg_replicas.h"

namespace replicant::learner {
namespace {

using replicator::Strategy;

class D4pgInGraphTest : public ::testing::TestWithParam<int> {
 protected:
  static replicator::ReplicationConfig Config(const char* backend) {
    return {.strategy = &Strategy::kInGraph,
            .replicas = GetParam(),
            .backend = backend};
  }
};

TEST_P(D4pgInGraphTest, LearnsFromStateAsOneReplica) {
  CheckLearnsAsOneReplica(StateCase(DType::kF64), Config("reference"));
  CheckLearnsAsOneReplica(StateCase(DType::kF32), Config("cpu"));
}

TEST_P(D4pgInGraphTest, GathersStatisticsAsOneReplica) {
  CheckLearnsAsOneReplica(StatisticsCase(DType::kF64), Config("reference"));
  CheckLearnsAsOneReplica(StatisticsCase(DType::kF32), Config("cpu"));
}

TEST_P(D4pgInGraphTest, LearnsARepresentationAsOneReplica) {
  CheckLearnsAsOneReplica(RepresentationCase(DType::kF64), Config("reference"));
  CheckLearnsAsOneReplica(RepresentationCase(DType::kF32), Config("cpu"));
}

TEST_P(D4pgInGraphTest, LearnsFromPixelsAsOneReplica) {
  CheckLearnsAsOneReplica(PixelCase(DType::kF64), Config("reference"));
  CheckLearnsAsOneReplica(PixelCase(DType::kF32), Config("cpu"));
}

// Encoder and policy on the first device, the critic on the last one.
TEST(D4pgDevicesTest, AnyNumberOfDevicesGivesTheBitsOfOne) {
  for (const D4pgCase& c :
       {StateCase(DType::kF32), PixelCase(DType::kF32),
        StatisticsCase(DType::kF32), RepresentationCase(DType::kF32)}) {
    for (const int replicas : {1, 2}) {
      const auto train = [&](int devices) {
        return TrainD4pg(c, {.strategy = replicas > 1 ? &Strategy::kInGraph
                                                      : &Strategy::kSingle,
                             .replicas = replicas,
                             .backend = "cpu",
                             .logical_devices = devices});
      };
      const D4pgRun one = train(1);
      for (const int devices : {2, 3}) {
        const D4pgRun many = train(devices);
        EXPECT_EQ(many.last, one.last) << replicas << " " << devices;
        EXPECT_EQ(many.priorities, one.priorities);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Replicas, D4pgInGraphTest, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace replicant::learner
