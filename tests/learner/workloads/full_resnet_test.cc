#include <gtest/gtest.h>

#include "tests/learner/workloads/image_replicas.h"

namespace replicant::learner {
namespace {

// Two updates of ResNet-50 as it is trained, on two images of 224 pixels.
ImageRun TrainResNet50(int logical_devices) {
  models::resnet::ResNetConfig model;
  model.depth = models::resnet::Depth::k50;
  model.stem = models::resnet::Stem::kImageNet;
  model.width = 64;
  model.image_size = 224;
  model.num_classes = 1000;
  // so that every block counts from the first step on
  model.has_zero_gamma = false;
  return TrainImages(
      ImageTraining(
          {.batch_size = 2, .side = 224, .num_classes = 1000, .seed = 5},
          {[=](replicator::ReplicaContext& replica,
               const replicator::Inputs& inputs) {
            return BuildResNetStep(replica, inputs, model, DType::kF32);
          }},
          /*num_steps=*/2),
      {.backend = "cpu", .logical_devices = logical_devices});
}

TEST(FullResNetTest, ResNet50OnTwoLogicalDevicesIsResNet50OnOne) {
  const ImageRun one = TrainResNet50(1);
  const ImageRun two = TrainResNet50(2);
  EXPECT_EQ(two.losses, one.losses);
  // without a difference of 51 million numbers in the message
  ASSERT_EQ(two.last.size(), one.last.size());
  for (const auto& [name, value] : one.last) {
    EXPECT_TRUE(two.last.at(name) == value) << name;
  }
  EXPECT_FALSE(one.last.at("fc/weight") == one.first.at("fc/weight"));
}

}  // namespace
}  // namespace replicant::learner
