// The three workloads on devices of XLA's plugin for the CPU against one
// replica of our own backend: the same global batches, ten steps.
#include <gtest/gtest.h>

#include "tests/learner/workloads/d4pg_replicas.h"
#include "tests/learner/workloads/image_replicas.h"
#include "tests/support/pjrt_cpu_plugin.h"

namespace replicant::learner {
namespace {

class PjrtWorkloadsTest : public ::testing::TestWithParam<int> {
 protected:
  static replicator::ReplicationConfig Config() {
    return testing::CpuPluginConfig(GetParam());
  }
  static void CheckD4pg(const D4pgCase& c) {
    const D4pgRun one = TrainD4pg(c, {.backend = "cpu"});
    const D4pgRun many = TrainD4pg(c, Config());
    EXPECT_EQ(many.num_steps, kReplicaSteps);
    CheckSameTraining(one.first, one.last, many.last, c.spec.dtype);
    EXPECT_LE(
        Distance(one.priorities, many.priorities),
        1e-3 * Distance(one.priorities, std::vector<double>(kReplicaBatch)));
  }
};

TEST_P(PjrtWorkloadsTest, D4pgLearnsFromStateAsOnTheCpu) {
  CheckD4pg(StateCase(DType::kF32));
}

TEST_P(PjrtWorkloadsTest, D4pgLearnsFromPixelsAsOnTheCpu) {
  CheckD4pg(PixelCase(DType::kF32));
}

TEST_P(PjrtWorkloadsTest, ResNetLearnsAsOnTheCpu) {
  constexpr auto kSync = models::NormStatistics::kSync;
  CheckSameRun(TrainResNet(DType::kF32, kSync, {.backend = "cpu"}),
               TrainResNet(DType::kF32, kSync, Config()), DType::kF32);
}

TEST_P(PjrtWorkloadsTest, SnganLearnsAsOnTheCpu) {
  CheckSameRun(TrainSngan(DType::kF32, {.backend = "cpu"}),
               TrainSngan(DType::kF32, Config()), DType::kF32);
}

INSTANTIATE_TEST_SUITE_P(Replicas, PjrtWorkloadsTest,
                         ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace replicant::learner
