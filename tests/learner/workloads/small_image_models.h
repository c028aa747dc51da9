#pragma once

#include <memory>

#include "learner/workloads/resnet_workload.h"
#include "learner/workloads/sngan_workload.h"
#include "models/resnet/update.h"
#include "replicator/make_replicator.h"

// ResNet and SN-GAN small enough for a test to train.
namespace replicant::learner {

inline models::resnet::ResNetConfig SmallResNet() {
  models::resnet::ResNetConfig config;
  config.depth = models::resnet::Depth::k18;
  config.stem = models::resnet::Stem::kSmall;
  config.width = 4;
  config.image_size = 16;
  config.num_classes = 3;
  config.optimizer.learning_rate = 0.05;
  return config;
}

inline models::sngan::SnganConfig SmallSngan() {
  models::sngan::SnganConfig config;
  config.num_classes = 3;
  config.latent_size = 8;
  config.generator_channels = 4;
  config.discriminator_channels = 4;
  config.discriminator_steps = 2;
  return config;
}

inline std::unique_ptr<replicator::Replicator> MakeReplicator(uint64_t seed) {
  return replicator::MakeReplicator({.backend = "cpu"}, seed);
}

inline ResNetWorkload MakeResNet(
    const models::resnet::ResNetConfig& config,
    graph::Precision precision = graph::Precision::kF32) {
  return {config, /*batch_size=*/16, precision, /*seed=*/1, MakeReplicator(1)};
}

inline SnganWorkload MakeSngan(const models::sngan::SnganConfig& config) {
  // a seed whose first loss is not zero by chance
  return {config, /*batch_size=*/4, graph::Precision::kF32, /*seed=*/2,
          MakeReplicator(2)};
}

}  // namespace replicant::learner
