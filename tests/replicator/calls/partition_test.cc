#include "replicator/calls/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/single_replica.h"
#include "replicator/calls/transfers.h"
#include "replicator/make_replicator.h"
#include "replicator/replicator.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;

constexpr CallSite kSite{"step.cc", 7};

int Count(const Graph& graph, std::string_view op) {
  return static_cast<int>(std::ranges::count_if(
      graph.nodes(),
      [&](const graph::Node& node) { return node.op->name == op; }));
}

// Two matrices, the second on the last device, trained by SGD with momentum.
struct TwoLayers {
  TwoLayers(Graph& graph, Output x, int last_device) {
    const VariableId first =
        graph.AddVariable({.name = "first", .shape = Shape({3, 5})});
    const VariableId second =
        graph.AddVariable({.name = "second", .shape = Shape({5, 1})});
    const Output hidden = graph::Tanh(graph::MatMul(x, graph.Read(first)));
    Output y;
    {
      const Graph::DeviceScope device(graph, last_device);
      y = graph::MatMul(hidden, graph.Read(second));
      loss = graph::ReduceMean(graph::Square(y));
    }
    parameters = {first, second};
    gradients = graph::Gradients(loss, {graph.Read(first), graph.Read(second)});
  }

  Output loss;
  std::vector<VariableId> parameters;
  std::vector<Output> gradients;
};

TEST(PartitionTest, VariablesFollowTheirOpsAndUpdatesTheirVariables) {
  Graph graph;
  const Output x = graph.Input("x", DType::kF32, Shape({4, 3}));
  const TwoLayers layers(graph, x, 1);
  nn::SingleReplica replica(graph);
  const Output update =
      nn::Sgd(replica, "sgd", layers.parameters, layers.gradients,
              graph.Scalar(0.1, DType::kF32), {.momentum = 0.9});
  const PartitionedProgram parts =
      Partition(graph::ExtractProgram(graph, {layers.loss}, {update}), 2);
  ASSERT_EQ(parts.devices.size(), 2u);
  const auto updated = [&](size_t device) {
    std::vector<std::string> names;
    const Graph& g = *parts.devices[device].graph;
    for (const graph::Node& node : g.nodes()) {
      for (const VariableId variable : node.updates) {
        names.push_back(g.variable(variable).name);
      }
    }
    return names;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(updated(0), (Names{"first", "sgd/momentum/first"}));
  EXPECT_EQ(updated(1), (Names{"second", "sgd/momentum/second"}));
  // the hidden layer goes there, and its gradient comes back
  EXPECT_EQ(parts.num_channels, 2);
  for (const auto& part : parts.devices) {
    EXPECT_EQ(Count(*part.graph, "Send"), 1);
    EXPECT_EQ(Count(*part.graph, "Receive"), 1);
    EXPECT_EQ(part.updates.size(), 1u);
  }
  // the loss, and on both what keeps the transfers
  EXPECT_EQ(parts.outputs[0].device, 1u);
  EXPECT_EQ(parts.outputs[0].index, 0u);
  EXPECT_EQ(parts.devices[0].outputs.size(), 1u);
  EXPECT_EQ(parts.devices[1].outputs.size(), 2u);
}

TEST(PartitionTest, LeavesAProgramForOneDeviceAsItIs) {
  Graph graph;
  const Output x = graph.Input("x", DType::kF32, Shape({4, 3}));
  const TwoLayers layers(graph, x, 0);
  const PartitionedProgram parts =
      Partition(graph::ExtractProgram(graph, {layers.loss}, {}), 1);
  ASSERT_EQ(parts.devices.size(), 1u);
  EXPECT_EQ(parts.num_channels, 0);
  EXPECT_EQ(Count(*parts.devices[0].graph, "Send"), 0);
}

// NetworkStep() with its second matrix on another device.
std::map<std::string, std::vector<double>> TrainOnDevices(int replicas,
                                                          int devices) {
  const auto replicator = MakeReplicator(
      {.strategy = replicas == 1 ? &Strategy::kSingle : &Strategy::kInGraph,
       .replicas = replicas,
       .backend = "reference",
       .logical_devices = devices},
      /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(8, 10, RealValue));
  const auto step = replicator->Build(*input, [&](ReplicaContext& replica,
                                                  const Inputs& batch) {
    Graph& g = replica.graph();
    const Output x = graph::Cast(batch.at("x"), DType::kF32);
    const VariableId count = g.AddVariable({.name = "count",
                                            .dtype = DType::kF64,
                                            .shape = Shape({}),
                                            .is_trainable = false});
    const auto device = replica.LogicalDevice(devices - 1);
    const auto random = [](RandomStream& stream, MutableTensorView value) {
      for (float& v : value.Span<float>()) {
        v = static_cast<float>(stream.Normal());
      }
    };
    const VariableId weight = g.AddVariable(
        {.name = "weight", .shape = Shape({3, 4}), .initializer = random});
    const Output y = graph::Tanh(graph::MatMul(x, g.Read(weight)));
    Output loss;
    VariableId last = -1;
    {
      const auto first_device = replica.LogicalDevice(0);
      last = g.AddVariable(
          {.name = "last", .shape = Shape({4, 1}), .initializer = random});
      loss = graph::ReduceMean(graph::Square(graph::MatMul(y, g.Read(last))));
    }
    const nn::StepCounter counter = nn::AddStepCounter(g, "step");
    const Optimizer adam = replica.WrapOptimizer(
        [&](const auto& variables, const auto& gradients) {
          return nn::Adam(replica, "adam", variables, gradients,
                          g.Scalar(0.01, DType::kF32), counter.value, {},
                          {.max_global_norm = 0.5});
        });
    const std::vector<VariableId> parameters = {weight, last};
    const Output update = adam(
        parameters, graph::Gradients(loss, {g.Read(weight), g.Read(last)}));
    const Output counted =
        graph::Assign(g, count, graph::Add(g.Read(count), 1.0));
    return StepOutputs{
        .values = {{"loss", replica.AllReduce(loss, ReduceOp::kMean)},
                   {"y", replica.AllGather(y)}},
        .updates = {update, counted, counter.advance}};
  });
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  EXPECT_EQ(step->value("y").shape(), Shape({replicas, 8 / replicas, 4}));
  std::map<std::string, std::vector<double>> variables;
  for (const auto& [name, variable] : replicator->variables().variables()) {
    const HostTensor tensor = replicator->variables().Get(name);
    for (const std::byte b : tensor.bytes()) {
      variables[name].push_back(static_cast<double>(b));
    }
  }
  return variables;
}

TEST(LogicalDeviceTest, DividedReplicasTrainToTheSameBits) {
  for (const int replicas : {1, 2}) {
    const auto whole = TrainOnDevices(replicas, 1);
    EXPECT_EQ(TrainOnDevices(replicas, 2), whole) << replicas;
    EXPECT_EQ(TrainOnDevices(replicas, 3), whole) << replicas;
  }
}

TEST(LogicalDeviceTest, RefusesADeviceThatThereIsNot) {
  const auto replicator = MakeReplicator(
      {.backend = "reference", .logical_devices = 2}, /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(1, 1, WholeValue));
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] {
        replicator->Build(*input, [](ReplicaContext& replica,
                                     const Inputs& batch) {
          const auto device = replica.LogicalDevice(2, kSite);
          return StepOutputs{.values = {{"x", batch.at("x")}}, .updates = {}};
        });
      }),
      "step.cc:7: LogicalDevice: 2 does not belong to this replica; allowed: 0 "
      "to 1; hint: replication.logical_devices");
}

TEST(ChannelsTest, AReceiverThatWaitsInVainIsTold) {
  Channels channels(2, std::chrono::milliseconds(20));
  std::byte data[4] = {};
  EXPECT_EQ(MessageOf<CommError>([&] { channels.Take(1, data, 4); }),
            "a logical device waited 0.02 s for tensor 1 of another one");
  channels.Put(1, data, 4);
  channels.Take(1, data, 4);
  channels.Abort("replica 0: full");
  EXPECT_EQ(MessageOf<CommError>([&] { channels.Take(1, data, 4); }),
            "replica 0: full");
}

}  // namespace
}  // namespace replicant::replicator
