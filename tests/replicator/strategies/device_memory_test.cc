#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/kernels/backend.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"
#include "tests/support/guarded_backend.h"

// Replicas on a backend whose memory the host may not touch
// (tests/support/guarded_backend.h) compute the bits of "reference". A touch
// ends the process.
namespace replicant::replicator {
namespace {

using kernels::BackendFactory;

constexpr int64_t kRows = 8;
constexpr int64_t kHidden = 5;
constexpr CallSite kHere{"step.cc", 7};

// Values that differ from row to row, and are no whole numbers.
double BatchValue(int64_t step, int64_t row, int64_t column) {
  return static_cast<double>((7 * row + 5 * column + 3 * step) % 11 - 5) / 8.0;
}

graph::Initializer Spread(double scale) {
  return [scale](RandomStream& stream, MutableTensorView value) {
    for (float& v : value.Span<float>()) {
      v = static_cast<float>(scale * (stream.Uniform() - 0.5));
    }
  };
}

// Two dense layers, the second one on the last logical device, trained by
// gradient descent.
StepOutputs DenseStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const VariableId w1 = g.AddVariable({.name = "w1",
                                       .shape = Shape({kColumns, kHidden}),
                                       .initializer = Spread(1.0)});
  const VariableId w2 = g.AddVariable(
      {.name = "w2", .shape = Shape({kHidden, 1}), .initializer = Spread(2.0)});
  const Output x = graph::Cast(batch.at("x"), DType::kF32);
  const Output hidden = graph::Tanh(graph::MatMul(x, g.Read(w1)));
  const auto device = replica.LogicalDevice(replica.num_logical_devices() - 1);
  const Output y = graph::MatMul(hidden, g.Read(w2));
  const Output loss = graph::ReduceMean(
      graph::Square(graph::Sub(y, g.Scalar(0.3, DType::kF32))));
  const Optimizer sgd =
      replica.WrapOptimizer([&](const std::vector<VariableId>& parameters,
                                const std::vector<Output>& gradients) {
        return nn::Sgd(replica, "sgd", parameters, gradients,
                       g.Scalar(0.1, DType::kF32));
      });
  return {.values = {{"loss", loss}, {"hidden", hidden}},
          .updates = {
              sgd({w1, w2}, graph::Gradients(loss, {g.Read(w1), g.Read(w2)}))}};
}

// Adds a mean of the batch, which every replica moves by its own rows.
StepOutputs DenseStepWithMean(ReplicaContext& replica, const Inputs& batch) {
  StepOutputs outputs = DenseStep(replica, batch);
  Graph& g = replica.graph();
  const VariableId mean =
      g.AddVariable({.name = "mean",
                     .shape = Shape({}),
                     .is_trainable = false,
                     .agreement = graph::ReplicaAgreement::kMean});
  const Output of_batch =
      graph::ReduceMean(graph::Cast(batch.at("x"), DType::kF32));
  const Output moved =
      graph::Add(graph::Mul(g.Read(mean), 0.9), graph::Mul(of_batch, 0.1));
  outputs.updates.push_back(graph::Assign(g, mean, moved, kHere));
  return outputs;
}

using Bytes = std::vector<std::byte>;

Bytes BytesOf(TensorView view) {
  const auto bytes = view.bytes();
  return {bytes.begin(), bytes.end()};
}

// The values of six steps, and the variables behind them, by name; a program
// writes into a variable in the middle.
std::map<std::string, Bytes> Train(const ReplicationConfig& config,
                                   const StepFn& step_fn,
                                   const BackendFactory& make_backend) {
  const auto replicator =
      MakeReplicator(config, /*seed=*/1, /*rank=*/{}, make_backend);
  const auto input = replicator->MakeInput(Rows(kRows, 6, BatchValue));
  const auto step = replicator->Build(*input, step_fn);
  std::map<std::string, Bytes> result;
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    for (const char* name : {"loss", "hidden"}) {
      result[std::to_string(i) + name] = BytesOf(step->value(name));
    }
    if (i == 3) {
      HostTensor w2 = replicator->variables().Get("w2");
      w2.mutable_view().Span<float>()[1] = 0.25F;
      replicator->variables().Set("w2", w2.view());
    }
  }
  EXPECT_EQ(step->Run(kNoWait), NextResult::kEnd);
  for (const auto& [name, variable] : replicator->variables().variables()) {
    result[name] = BytesOf(replicator->variables().Get(name).view());
  }
  return result;
}

struct Case {
  std::string name;
  ReplicationConfig config;
  StepFn step_fn = DenseStepWithMean;
};

class DeviceMemoryTest : public ::testing::TestWithParam<Case> {};

TEST_P(DeviceMemoryTest, ReplicasComputeTheBitsOfReference) {
  const Case& c = GetParam();
  const auto expected = Train(c.config, c.step_fn, kernels::MakeBackend);
  EXPECT_GT(expected.size(), 12U);
  EXPECT_NE(expected.at("0loss"), expected.at("5loss"));
  EXPECT_EQ(
      Train(c.config, c.step_fn, replicant::testing::MakeGuardedBackendNamed),
      expected);
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, DeviceMemoryTest,
    ::testing::Values(Case{"Single", {.backend = "reference"}},
                      Case{"InGraph",
                           {.strategy = &Strategy::kInGraph,
                            .replicas = 2,
                            .backend = "reference"}},
                      Case{"SmallWire",
                           {.strategy = &Strategy::kInGraph,
                            .replicas = 2,
                            .backend = "reference",
                            .gradient_format = DType::kBF16}},
                      Case{"Accumulation",
                           {.strategy = &Strategy::kInGraph,
                            .replicas = 2,
                            .backend = "reference",
                            .accumulation_steps = 2},
                           DenseStep},
                      Case{"LogicalDevices",
                           {.strategy = &Strategy::kInGraph,
                            .replicas = 2,
                            .backend = "reference",
                            .logical_devices = 2},
                           DenseStep}),
    [](const auto& c) { return c.param.name; });

TEST(DeviceMemoryTest, PrimitivesStageThroughTheHost) {
  const ReplicationConfig config{
      .strategy = &Strategy::kInGraph, .replicas = 2, .backend = "reference"};
  CheckPrimitives(config, replicant::testing::MakeGuardedBackendNamed);
}

TEST(DeviceMemoryTest, HogwildSaysWhyItWantsHostMemory) {
  const ReplicationConfig config{
      .strategy = &Strategy::kHogwild, .replicas = 2, .backend = "guarded"};
  EXPECT_EQ(replicant::testing::MessageOf<ConfigError>([&] {
              MakeReplicator(config, /*seed=*/1, /*rank=*/{},
                             replicant::testing::MakeGuardedBackendNamed);
            }),
            "replication: hogwild updates one copy of the variables in host "
            "memory, which backend guarded does not use; use cpu");
}

// The basis of the other tests.
TEST(GuardedBackendDeathTest, ATouchByTheHostEndsTheProcess) {
  const auto backend = replicant::testing::MakeGuardedBackend();
  const auto buffer = backend->Allocate(64);
  EXPECT_DEATH(
      static_cast<volatile std::byte*>(buffer->data())[3] = std::byte{1}, "");
}

}  // namespace
}  // namespace replicant::replicator
