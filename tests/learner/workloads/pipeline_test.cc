// ResNet whose micro-batches go through logical devices one behind the other.
#include <gtest/gtest.h>

#include "engine/graph/passes/passes.h"
#include "engine/nn/single_replica.h"
#include "models/resnet/update.h"
#include "replicator/calls/partition.h"
#include "tests/learner/workloads/image_replicas.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using graph::Graph;
using replicator::ReplicationConfig;
using replicator::Strategy;

ReplicationConfig OnDevices(int replicas, int devices) {
  return {.strategy = replicas > 1 ? &Strategy::kInGraph : &Strategy::kSingle,
          .replicas = replicas,
          .backend = "cpu",
          .logical_devices = devices};
}

// Would differ if a device took the parts in another order, or if one part's
// statistics or gradients reached another's.
TEST(PipelineTest, AnyNumberOfDevicesGivesTheBitsOfOne) {
  for (const int replicas : {1, 2}) {
    for (const int micro_batches : {1, 2, 4}) {
      const auto train = [&](int devices) {
        return TrainResNet(DType::kF32, models::NormStatistics::kPerReplica,
                           OnDevices(replicas, devices), kImageSteps,
                           micro_batches);
      };
      const ImageRun one = train(1);
      for (const int devices : {2, 4}) {
        const ImageRun many = train(devices);
        EXPECT_EQ(many.losses, one.losses);
        EXPECT_EQ(many.last, one.last)
            << replicas << " replicas, " << micro_batches << " parts, "
            << devices << " devices";
      }
    }
  }
}

// Activations of every part leave the first device before it waits for the
// gradient of any, and gradients of every part leave the last one behind one
// another. Anything else would leave a device idle for longer than the bubble.
TEST(PipelineTest, NoDeviceWaitsBetweenParts) {
  constexpr int kParts = 4;
  Graph graph;
  models::resnet::ResNetConfig model;
  model.depth = models::resnet::Depth::k18;
  model.stem = models::resnet::Stem::kSmall;
  model.width = 4;
  model.image_size = 16;
  model.num_classes = 3;
  model.micro_batches = kParts;
  nn::SingleReplica replica(graph, {.num_logical_devices = 2});
  const models::resnet::Update update = models::resnet::BuildUpdate(
      replica, model, DType::kF32,
      models::resnet::Batch{
          .image = graph.Input("image", DType::kU8, Shape({8, 16, 16, 3})),
          .label = graph.Input("label", DType::kI32, Shape({8}))});
  const replicator::PartitionedProgram parts = replicator::Partition(
      graph::ExtractProgram(graph, {update.score.loss}, update.updates), 2);
  const auto transfers = [&](size_t device) {
    std::string order;
    for (const graph::Node& node : parts.devices[device].graph->nodes()) {
      if (node.op->name == "Send") order += 's';
      if (node.op->name == "Receive") order += 'r';
    }
    return order;
  };
  // the labels and the parts, then the gradients; at the end the step's number
  EXPECT_EQ(transfers(0).substr(0, 9), "sssssrrrr") << transfers(0);
  EXPECT_EQ(transfers(1).substr(0, 9), "rrrrrssss") << transfers(1);
}

// Two parts of a replica's rows are the rows of two replicas, each normalised
// by its own. Running statistics are not: the parts move them twice, the
// replicas once by their mean.
TEST(PipelineTest, TwoPartsLearnWhatTwoReplicasDo) {
  const auto train = [](const ReplicationConfig& config, int micro_batches) {
    return TrainResNet(DType::kF64, models::NormStatistics::kPerReplica, config,
                       kImageSteps, micro_batches);
  };
  const ImageRun parts = train({.backend = "reference"}, 2);
  const ImageRun replicas = train(
      {.strategy = &Strategy::kInGraph, .replicas = 2, .backend = "reference"},
      1);
  for (size_t i = 0; i < parts.losses.size(); ++i) {
    EXPECT_NEAR(parts.losses[i], replicas.losses[i], 1e-9) << i;
  }
  for (const auto& [name, value] : replicas.last) {
    if (name.find("running") != std::string::npos) continue;
    EXPECT_LE(Distance(value, parts.last.at(name)), 1e-9) << name;
  }
  EXPECT_NE(parts.losses, train({.backend = "reference"}, 1).losses);
}

// Blocks of both networks are divided among the devices.
TEST(DevicesTest, SnganOnAnyNumberOfDevicesHasTheBitsOfOne) {
  for (const int replicas : {1, 2}) {
    const ImageRun one = TrainSngan(DType::kF32, OnDevices(replicas, 1));
    for (const int devices : {2, 4}) {
      const ImageRun many =
          TrainSngan(DType::kF32, OnDevices(replicas, devices));
      EXPECT_EQ(many.losses, one.losses) << replicas << " " << devices;
      EXPECT_EQ(many.last, one.last) << replicas << " " << devices;
    }
  }
}

TEST(PipelineTest, RefusesPartsThatDoNotDivideTheRows) {
  EXPECT_EQ(testing::MessageOf<InvalidArgument>([] {
              TrainResNet(DType::kF32, models::NormStatistics::kPerReplica,
                          OnDevices(2, 1), 1, /*micro_batches=*/3);
            }),
            "micro_batches: the 4 rows of a replica cannot be divided evenly "
            "into 3");
}

}  // namespace
}  // namespace replicant::learner
