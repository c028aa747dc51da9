// Run by mpirun, with one replica in each process and, of two processes, with
// two; every process runs all tests.
#include <gtest/gtest.h>

#include "core/comm/mpi_communicator.h"
#include "tests/learner/workloads/image_replicas.h"
#include "tests/learner/workloads/mpi_replicas.h"

namespace replicant::learner {
namespace {

using replicator::Strategy;

// By how many replicas are in each process.
class ImageBetweenGraphTest : public ::testing::TestWithParam<int> {
 protected:
  static replicator::ReplicationConfig Config(const Strategy* strategy,
                                              const char* backend) {
    return ReplicasOfProcesses(strategy, backend, GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(ReplicasPerProcess, ImageBetweenGraphTest,
                         ::testing::Range(1,
                                          comm::NumMpiProcesses() > 2 ? 2 : 3));

TEST_P(ImageBetweenGraphTest, ResNetLearnsAsOneReplica) {
  CheckResNetLearnsAsOneReplica(DType::kF64,
                                Config(&Strategy::kBetweenGraph, "reference"));
  CheckResNetLearnsAsOneReplica(DType::kF32,
                                Config(&Strategy::kBetweenGraph, "cpu"));
}

TEST_P(ImageBetweenGraphTest, SnganLearnsAsOneReplica) {
  CheckSnganLearnsAsOneReplica(DType::kF64,
                               Config(&Strategy::kBetweenGraph, "reference"));
  CheckSnganLearnsAsOneReplica(DType::kF32,
                               Config(&Strategy::kBetweenGraph, "cpu"));
}

TEST_P(ImageBetweenGraphTest, GivesTheBitsOfReplicasInOneProcess) {
  for (const auto statistics :
       {models::NormStatistics::kSync, models::NormStatistics::kPerReplica}) {
    const auto train = [&](const Strategy* strategy) {
      return TrainResNet(DType::kF32, statistics, Config(strategy, "cpu")).last;
    };
    EXPECT_EQ(train(&Strategy::kBetweenGraph), train(&Strategy::kInGraph));
  }
  // everything that divides an update and its gradients at once
  const auto train_divided = [&](const Strategy* strategy, DType wire) {
    replicator::ReplicationConfig config = Config(strategy, "cpu");
    config.logical_devices = 2;
    config.accumulation_steps = 2;
    config.wire = wire;
    Variables last =
        TrainResNet(DType::kF32, models::NormStatistics::kSync, config).last;
    // every replica has its own sums
    std::erase_if(last, [](const auto& variable) {
      return variable.first.starts_with("accumulation/");
    });
    return last;
  };
  for (const DType wire : {DType::kF32, DType::kBF16}) {
    EXPECT_EQ(train_divided(&Strategy::kBetweenGraph, wire),
              train_divided(&Strategy::kInGraph, wire));
  }
  const auto train = [&](const Strategy* strategy) {
    return TrainSngan(DType::kF32, Config(strategy, "cpu")).last;
  };
  EXPECT_EQ(train(&Strategy::kBetweenGraph), train(&Strategy::kInGraph));
}

}  // namespace
}  // namespace replicant::learner
