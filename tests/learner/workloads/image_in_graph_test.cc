#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/learner/workloads/image_replicas.h"

namespace replicant::learner {
namespace {

using replicator::Strategy;

class ImageInGraphTest : public ::testing::TestWithParam<int> {
 protected:
  static replicator::ReplicationConfig Config(const char* backend) {
    return {.strategy = &Strategy::kInGraph,
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

TEST_P(ImageInGraphTest, JointSnganLearnsAsOneReplica) {
  CheckSameRun(TrainJointSngan({.backend = "reference"}),
               TrainJointSngan(Config("reference")), DType::kF64);
}

INSTANTIATE_TEST_SUITE_P(Replicas, ImageInGraphTest,
                         ::testing::Values(2, 4, 8));

// ResNet's blocks on two groups of processors: the same bits.
TEST(ImageInGraphTest, ResNetOnLogicalDevicesIsResNetOnOne) {
  for (const int replicas : {1, 2}) {
    const auto train = [&](int devices) {
      return TrainResNet(DType::kF32, models::NormStatistics::kSync,
                         {.strategy = replicas > 1 ? &Strategy::kInGraph
                                                   : &Strategy::kSingle,
                          .replicas = replicas,
                          .backend = "cpu",
                          .logical_devices = devices})
          .last;
    };
    const Variables whole = train(1);
    EXPECT_EQ(train(2), whole) << replicas;
    EXPECT_EQ(train(4), whole) << replicas;
  }
}

// How far a training with gradients as bf16 is from one with f32, as a share of
// the way: momenta, or everything else.
double WireError(int num_steps, bool of_momenta) {
  const auto train = [&](DType wire) {
    return TrainResNet(DType::kF32, models::NormStatistics::kSync,
                       {.strategy = &Strategy::kInGraph,
                        .replicas = 4,
                        .backend = "cpu",
                        .gradient_format = wire},
                       num_steps);
  };
  const ImageRun exact = train(DType::kF32);
  const ImageRun rounded = train(DType::kBF16);
  double difference = 0.0;
  double moved = 0.0;
  for (const auto& [name, value] : exact.last) {
    if ((name.find("momentum") != std::string::npos) != of_momenta) continue;
    difference += std::pow(Distance(value, rounded.last.at(name)), 2);
    moved += std::pow(Distance(value, exact.first.at(name)), 2);
  }
  return std::sqrt(difference / moved);
}

// Each gradient is rounded to 8 bits, and so is their sum: 2^-8 each at most.
// The effect in ten steps depends on the network, here up to a hundredth.
TEST(ImageInGraphTest, ResNetLearnsMuchTheSameWithGradientsAsBf16) {
  // the first momenta are the gradients
  const double first = WireError(1, /*of_momenta=*/true);
  EXPECT_GT(first, 0.0);
  EXPECT_LE(first, 0x1p-7);
  EXPECT_LE(WireError(10, /*of_momenta=*/false), 0.05);
}

// Normalised by its own rows each replica has another variance, but what they
// save is the mean of theirs: after one step the running mean of the first norm
// covers all rows, but the running variance does not.
TEST(ImageInGraphTest, StatisticsOfEachReplicaAreSavedAsTheirMean) {
  const auto train = [](models::NormStatistics statistics, int replicas) {
    return TrainResNet(DType::kF64, statistics,
                       {.strategy = replicas > 1 ? &Strategy::kInGraph
                                                 : &Strategy::kSingle,
                        .replicas = replicas,
                        .backend = "reference"},
                       /*num_steps=*/1)
        .last;
  };
  const Variables one = train(models::NormStatistics::kPerReplica, 1);
  const Variables own = train(models::NormStatistics::kPerReplica, 4);
  const Variables sync = train(models::NormStatistics::kSync, 4);
  EXPECT_LE(Distance(one.at("bn1/running_mean"), own.at("bn1/running_mean")),
            1e-12);
  EXPECT_GE(Distance(one.at("bn1/running_var"), own.at("bn1/running_var")),
            1e-4);
  EXPECT_LE(Distance(one.at("bn1/running_var"), sync.at("bn1/running_var")),
            1e-12);
}

}  // namespace
}  // namespace replicant::learner
