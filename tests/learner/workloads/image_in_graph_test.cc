#include <gtest/gtest.h>

#include "tests/learner/workloads/image_replicas.h"

namespace replicant::learner {
namespace {

using replicator::Strategy;

class ImageInGraphTest : public ::testing::TestWithParam<int> {
 protected:
  static replicator::ReplicationConfig Config(const char* backend) {
    return {.strategy = Strategy::kInGraph,
            .replicas = GetParam(),
            .backend = backend};
  }
};

TEST_P(ImageInGraphTest, ResNetLearnsAsOneReplica) {
  CheckResNetLearnsAsOneReplica(DType::kF64, Config("reference"));
  CheckResNetLearnsAsOneReplica(DType::kF32, Config("cpu"));
}

TEST_P(ImageInGraphTest, SnganLearnsAsOneReplica) {
  CheckSnganLearnsAsOneReplica(DType::kF64, Config("reference"));
  CheckSnganLearnsAsOneReplica(DType::kF32, Config("cpu"));
}

INSTANTIATE_TEST_SUITE_P(Replicas, ImageInGraphTest,
                         ::testing::Values(2, 4, 8));

// Normalised by its own rows each replica has another variance, but what they
// save is the mean of theirs: after one step the running mean of the first norm
// is that of all rows, and the running variance is not.
TEST(ImageInGraphTest, StatisticsOfEachReplicaAreSavedAsTheirMean) {
  const auto train = [](NormStatistics statistics, int replicas) {
    return TrainResNet(DType::kF64, statistics,
                       {.strategy = replicas > 1 ? Strategy::kInGraph
                                                 : Strategy::kSingle,
                        .replicas = replicas,
                        .backend = "reference"},
                       /*num_steps=*/1)
        .last;
  };
  const Variables one = train(NormStatistics::kPerReplica, 1);
  const Variables own = train(NormStatistics::kPerReplica, 4);
  const Variables sync = train(NormStatistics::kSync, 4);
  EXPECT_LE(Distance(one.at("bn1/running_mean"), own.at("bn1/running_mean")),
            1e-12);
  EXPECT_GE(Distance(one.at("bn1/running_var"), own.at("bn1/running_var")),
            1e-4);
  EXPECT_LE(Distance(one.at("bn1/running_var"), sync.at("bn1/running_var")),
            1e-12);
}

}  // namespace
}  // namespace replicant::learner
