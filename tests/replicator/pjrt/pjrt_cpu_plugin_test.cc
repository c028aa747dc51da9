// Backend pjrt with XLA's own plugin for the CPU, on as many of its devices as
// there are replicas, against what every synchronous strategy must do.
#include "tests/support/pjrt_cpu_plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replicator/make_replicator.h"
#include "tests/replicator/joint_cases.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

class PjrtCpuPluginTest : public ::testing::TestWithParam<int> {
 protected:
  static ReplicationConfig Config() {
    return testing::CpuPluginConfig(GetParam());
  }
};

TEST_P(PjrtCpuPluginTest, PrimitivesGiveWhatTheyShould) {
  CheckPrimitives(Config());
}

TEST_P(PjrtCpuPluginTest, GradientsOfPrimitivesMatchCentralDifferences) {
  CheckGradients(Config(), /*may_differ=*/false);
}

// What XLA computes in f64 differs from our loops by rounding only.
TEST_P(PjrtCpuPluginTest, TrainsAsOneReplicaOfTheReferenceBackend) {
  const auto one = TrainNetwork({.backend = "reference"});
  const auto many = TrainNetwork(Config());
  ASSERT_EQ(one.size(), many.size());
  for (const auto& [name, value] : one) {
    // of the first replica's rows only
    if (name == "last") continue;
    EXPECT_LE(NormOfDifference(value, many.at(name)), 1e-9) << name;
  }
}

TEST_P(PjrtCpuPluginTest, TrainsTheSameHoweverItsInputComes) {
  const auto one = TrainNetwork(Config());
  for (const InputMode mode : {InputMode::kSingle, InputMode::kPerReplica}) {
    EXPECT_EQ(TrainNetwork(Config(), mode), one) << static_cast<int>(mode);
  }
}

// The sums of gradients stay on the devices from batch to batch.
TEST_P(PjrtCpuPluginTest, AccumulatesAsTheReferenceBackend) {
  ReplicationConfig config = Config();
  config.accumulation_steps = 3;
  const auto device = TrainNetwork(config);
  const auto host =
      TrainNetwork({.backend = "reference", .accumulation_steps = 3});
  for (const auto& [name, value] : host) {
    if (name == "last" || name.starts_with("accumulation")) continue;
    EXPECT_LE(NormOfDifference(value, device.at(name)), 1e-9) << name;
  }
}

// Would catch a later phase that does not see the variables of an earlier one
// on the device, or that runs on another batch.
TEST_P(PjrtCpuPluginTest, TrainsBothPhasesOfAJointStep) {
  CheckTrainsGanAsOneReplica(Config());
}

INSTANTIATE_TEST_SUITE_P(Replicas, PjrtCpuPluginTest,
                         ::testing::Values(1, 2, 4));

// The devices run one program.
TEST(PjrtCpuPluginStepTest, RefusesReplicasThatComputeDifferently) {
  EXPECT_THAT(testing::MessageOf<InvalidArgument>(
                  [] { CheckGradients(testing::CpuPluginConfig(2)); }),
              ::testing::HasSubstr("replicas 0 and 1 compute differently"));
}

TEST(PjrtCpuPluginStepTest, NamesAPlatformWithTooFewDevices) {
  EXPECT_EQ(testing::MessageOf<ConfigError>([] {
              MakeReplicator(testing::CpuPluginConfig(16), /*seed=*/1);
            }),
            "replication.replicas: 16 replicas want as many devices, but "
            "platform cpu has 8 (cpu)");
}

}  // namespace
}  // namespace replicant::replicator
