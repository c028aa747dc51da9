// The three workloads on devices of XLA's plugin for the CPU against one
// replica of our own backend: the same global batches, ten steps.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/learner/workloads/d4pg_replicas.h"
#include "tests/learner/workloads/image_replicas.h"
#include "tests/support/pjrt_cpu_plugin.h"

namespace replicant::learner {
namespace {

void CheckD4pg(const D4pgCase& c, int replicas) {
  const D4pgRun one = TrainD4pg(c, {.backend = "cpu"});
  const D4pgRun many = TrainD4pg(c, testing::CpuPluginConfig(replicas));
  EXPECT_EQ(many.num_steps, kReplicaSteps);
  CheckSameTraining(one.first, one.last, many.last, c.spec.dtype);
  EXPECT_LE(
      Distance(one.priorities, many.priorities),
      1e-3 * Distance(one.priorities, std::vector<double>(kReplicaBatch)));
}

void CheckD4pgFromState(int replicas) {
  CheckD4pg(StateCase(DType::kF32), replicas);
}

void CheckD4pgFromPixels(int replicas) {
  CheckD4pg(PixelCase(DType::kF32), replicas);
}

void CheckResNet(int replicas) {
  constexpr auto kSync = models::NormStatistics::kSync;
  CheckSameRun(
      TrainResNet(DType::kF32, kSync, {.backend = "cpu"}),
      TrainResNet(DType::kF32, kSync, testing::CpuPluginConfig(replicas)),
      DType::kF32);
}

void CheckSngan(int replicas) {
  CheckSameRun(TrainSngan(DType::kF32, {.backend = "cpu"}),
               TrainSngan(DType::kF32, testing::CpuPluginConfig(replicas)),
               DType::kF32);
}

struct Case {
  const char* workload;
  void (*check)(int replicas);
  int replicas;
};

std::string NameOf(const ::testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}", info.param.workload, info.param.replicas);
}

class PjrtWorkloadsTest : public ::testing::TestWithParam<Case> {};

TEST_P(PjrtWorkloadsTest, LearnsAsOnTheCpu) {
  GetParam().check(GetParam().replicas);
}

INSTANTIATE_TEST_SUITE_P(
    Short, PjrtWorkloadsTest,
    ::testing::Values(Case{"state", &CheckD4pgFromState, 1},
                      Case{"pixels", &CheckD4pgFromPixels, 2},
                      Case{"resnet", &CheckResNet, 4},
                      Case{"sngan", &CheckSngan, 2}),
    &NameOf);

// scripts/checks/pjrt runs these: XLA takes a minute to compile them.
INSTANTIATE_TEST_SUITE_P(
    DISABLED_Other, PjrtWorkloadsTest,
    ::testing::Values(Case{"state", &CheckD4pgFromState, 2},
                      Case{"state", &CheckD4pgFromState, 4},
                      Case{"pixels", &CheckD4pgFromPixels, 1},
                      Case{"pixels", &CheckD4pgFromPixels, 4},
                      Case{"resnet", &CheckResNet, 1},
                      Case{"resnet", &CheckResNet, 2},
                      Case{"sngan", &CheckSngan, 1},
                      Case{"sngan", &CheckSngan, 4}),
    &NameOf);

}  // namespace
}  // namespace replicant::learner
