#include "replicator/replicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/config/load.h"
#include "base/error.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "engine/nn/optimizers.h"
#include "replicator/make_replicator.h"
#include "tests/support/message_of.h"

namespace replicant::replicator {
namespace {

using graph::VariableId;
using testing::MessageOf;

constexpr CallSite kSite{"step.cc", 7};
constexpr Clock::TimePoint kNoWait{};

ReplicationConfig OnReference() { return {.backend = "reference"}; }

// Rows x of y = 2 x_0 - 3 x_1: two different ones in turn, `length` of them.
class LinePipeline : public InputPipeline {
 public:
  explicit LinePipeline(int length) : length_(length) {}

  const std::vector<InputSpec>& specs() const override { return specs_; }

  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    if (is_late) return NextResult::kTimeout;
    if (position_ == length_) return NextResult::kEnd;
    const auto x = batch[0].Span<float>();
    const auto y = batch[1].Span<float>();
    x[0] = position_ % 2 == 0 ? 1.0F : 0.5F;
    x[1] = position_ % 2 == 0 ? -1.0F : 2.0F;
    y[0] = 2.0F * x[0] - 3.0F * x[1];
    ++position_;
    return NextResult::kOk;
  }

  bool is_late = false;

 private:
  std::vector<InputSpec> specs_ = {{"x", DType::kF32, Shape({1, 2})},
                                   {"y", DType::kF32, Shape({1, 1})}};
  int length_;
  int position_ = 0;
};

InputFn Lines(int length) {
  return [length](const InputContext& /*context*/) {
    return std::make_unique<LinePipeline>(length);
  };
}

// Least squares by gradient descent.
StepOutputs RegressionStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const VariableId weight =
      g.AddVariable({.name = "w", .shape = Shape({2, 1})});
  const Output error =
      graph::Sub(graph::MatMul(batch.at("x"), g.Read(weight)), batch.at("y"));
  const Output loss = graph::ReduceSum(graph::Square(error));
  const Optimizer sgd =
      replica.WrapOptimizer([&](const std::vector<VariableId>& parameters,
                                const std::vector<Output>& gradients) {
        return nn::Sgd(replica, "sgd", parameters, gradients,
                       g.Scalar(0.1, DType::kF32));
      });
  return {.values = {{"loss", loss}, {"error", error}},
          .updates = {sgd({weight}, graph::Gradients(loss, {g.Read(weight)}))}};
}

TEST(ReplicatorTest, AStepFunctionLearns) {
  const auto replicator = MakeReplicator(OnReference(), /*seed=*/1);
  const auto input = replicator->MakeInput(Lines(200));
  const auto step = replicator->Build(*input, RegressionStep);
  int num_steps = 0;
  while (step->Run(kNoWait) == NextResult::kOk) ++num_steps;
  EXPECT_EQ(num_steps, 200);
  EXPECT_LT(step->value("loss").Span<float>()[0], 1e-8F);
  const HostTensor weight = replicator->variables().Get("w");
  EXPECT_NEAR(weight.view().Span<float>()[0], 2.0, 1e-4);
  EXPECT_NEAR(weight.view().Span<float>()[1], -3.0, 1e-4);
}

TEST(ReplicatorTest, StepsShareOneInputAndTheVariables) {
  const auto replicator = MakeReplicator(OnReference(), /*seed=*/1);
  const auto input = replicator->MakeInput(Lines(3));
  const auto train = replicator->Build(*input, RegressionStep);
  const auto read = replicator->Build(*input, [](ReplicaContext& replica,
                                                 const Inputs& batch) {
    Graph& g = replica.graph();
    const VariableId weight =
        g.AddVariable({.name = "w", .shape = Shape({2, 1})});
    return StepOutputs{.values = {{"x", batch.at("x")}, {"w", g.Read(weight)}},
                       .updates = {}};
  });
  ASSERT_EQ(train->Run(kNoWait), NextResult::kOk);
  ASSERT_EQ(read->Run(kNoWait), NextResult::kOk);
  // the second batch, and what the first step learned:
  // w = 0 - 0.1 * 2 * (0 - 5) * (1, -1)
  EXPECT_EQ(read->value("x").Span<float>()[1], 2.0F);
  EXPECT_FLOAT_EQ(read->value("w").Span<float>()[0], 1.0F);
  EXPECT_FLOAT_EQ(read->value("w").Span<float>()[1], -1.0F);
}

TEST(ReplicatorTest, NothingRunsWithoutABatch) {
  const auto replicator = MakeReplicator(OnReference(), /*seed=*/1);
  LinePipeline* lines = nullptr;
  const auto input = replicator->MakeInput([&](const InputContext&) {
    auto made = std::make_unique<LinePipeline>(1);
    lines = made.get();
    return made;
  });
  const auto step = replicator->Build(*input, RegressionStep);
  lines->is_late = true;
  EXPECT_EQ(step->Run(kNoWait), NextResult::kTimeout);
  EXPECT_EQ(replicator->variables().Get("w").view().Span<float>()[0], 0.0F);
  lines->is_late = false;
  EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(step->Run(kNoWait), NextResult::kEnd);
  EXPECT_FLOAT_EQ(replicator->variables().Get("w").view().Span<float>()[0],
                  1.0F);
}

TEST(ReplicatorTest, PrimitivesOfOneReplicaAreTheIdentity) {
  const auto replicator = MakeReplicator(OnReference(), /*seed=*/1);
  EXPECT_EQ(replicator->num_replicas(), 1);
  const auto input = replicator->MakeInput(Lines(1));
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        const Output x = batch.at("x");
        const auto twice = [](Output v) { return graph::Mul(v, 2.0); };
        return StepOutputs{
            .values = {{"mean", replica.AllReduce(x, ReduceOp::kMean)},
                       {"prod", replica.AllReduce(x, ReduceOp::kProd)},
                       {"sum", replica.AllSum(x)},
                       {"min", replica.AllMin(x)},
                       {"max", replica.AllMax(x)},
                       {"scattered", replica.ReduceScatter(x, ReduceOp::kSum)},
                       {"broadcast", replica.Broadcast(x, 0)},
                       {"gathered", replica.AllGather(x)},
                       {"twice", replica.MapReduce(twice, x, ReduceOp::kSum)},
                       {"all_twice", replica.MapGather(twice, x)}},
            .updates = {}};
      });
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  for (const char* name :
       {"mean", "prod", "sum", "min", "max", "scattered", "broadcast"}) {
    EXPECT_EQ(step->value(name).shape(), Shape({1, 2})) << name;
    EXPECT_EQ(step->value(name).Span<float>()[1], -1.0F) << name;
  }
  EXPECT_EQ(step->value("gathered").shape(), Shape({1, 1, 2}));
  EXPECT_EQ(step->value("gathered").Span<float>()[1], -1.0F);
  EXPECT_EQ(step->value("twice").Span<float>()[1], -2.0F);
  EXPECT_EQ(step->value("all_twice").shape(), Shape({1, 1, 2}));
}

TEST(ReplicatorTest, GradientsFlowThroughThePrimitives) {
  const auto replicator = MakeReplicator(OnReference(), /*seed=*/1);
  const auto input = replicator->MakeInput(Lines(1));
  const auto step = replicator->Build(*input, [](ReplicaContext& replica,
                                                 const Inputs& batch) {
    const Output x = batch.at("x");
    const Output loss = graph::ReduceSum(graph::Square(replica.AllGather(x)));
    return StepOutputs{.values = {{"gradient", graph::Gradients(loss, {x})[0]}},
                       .updates = {}};
  });
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(step->value("gradient").Span<float>()[1], -2.0F);
}

TEST(ReplicatorTest, RefusesWhatDoesNotFit) {
  const auto replicator = MakeReplicator(OnReference(), /*seed=*/1);
  const auto input = replicator->MakeInput(Lines(1));
  const auto message = [&](const auto& build) {
    return MessageOf<InvalidArgument>([&] {
      replicator->Build(*input,
                        [&](ReplicaContext& replica, const Inputs& batch) {
                          build(replica, batch);
                          return StepOutputs{};
                        });
    });
  };
  EXPECT_EQ(message([](ReplicaContext&, const Inputs& batch) {
              batch.at("z", kSite);
            }),
            "step.cc:7: the batch has no 'z'; there are: x, y");
  EXPECT_EQ(message([](ReplicaContext& replica, const Inputs& batch) {
              replica.Broadcast(batch.at("x"), 1, kSite);
            }),
            "step.cc:7: Broadcast: source 1 is not a replica; allowed: 0 to 0");
  EXPECT_EQ(message([](ReplicaContext& replica, const Inputs&) {
              replica.ReduceScatter(replica.graph().Scalar(1.0, DType::kF32),
                                    ReduceOp::kSum, kSite);
            }),
            "step.cc:7: ReduceScatter: the leading dimension of [] cannot be "
            "divided among 1 replicas");
  EXPECT_EQ(message([](ReplicaContext& replica, const Inputs&) {
              replica.AllReduce(replica.graph().Scalar(1.0, DType::kI32),
                                ReduceOp::kMean, kSite);
            }),
            "step.cc:7: AllReduce: x is i32; a mean is for floating tensors");
  EXPECT_EQ(message([](ReplicaContext& replica, const Inputs&) {
              replica.AllSum(replica.graph().Scalar(1.0, DType::kBool), kSite);
            }),
            "step.cc:7: AllReduce: cannot reduce bool; hint: cast it");
}

TEST(ReplicatorTest, ValuesAreFoundByName) {
  const auto replicator = MakeReplicator(OnReference(), /*seed=*/1);
  const auto input = replicator->MakeInput(Lines(1));
  const auto step = replicator->Build(*input, RegressionStep);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { step->value("los"); }),
            "step has no value 'los'; there are: loss, error");
  EXPECT_EQ(MessageOf<InvalidArgument>([&] {
              replicator->Build(
                  *input, [](ReplicaContext&, const Inputs& batch) {
                    return StepOutputs{
                        .values = {{"x", batch.at("x")}, {"x", batch.at("y")}},
                        .updates = {}};
                  });
            }),
            "the step function gives two values called 'x'");
}

TEST(ReplicatorTest, RefusesAnUnknownBackend) {
  EXPECT_THROW(MakeReplicator({.backend = "tpu"}, /*seed=*/1), InvalidArgument);
}

TEST(InputContextTest, DividesTheGlobalBatch) {
  const InputContext context{.num_replicas = 4};
  EXPECT_EQ(context.PerReplicaBatchSize(64), 16);
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { context.PerReplicaBatchSize(66, kSite); }),
            "step.cc:7: a global batch of 66 cannot be divided evenly among 4 "
            "replicas");
  EXPECT_THROW(context.PerReplicaBatchSize(0), InvalidArgument);
}

TEST(ReplicationConfigTest, ReadsStrategyBackendAndThreads) {
  const auto load = [](std::string_view text) {
    return config::Load<ReplicationConfig>(
               config::Document::FromText("run.yaml", text))
        .config;
  };
  EXPECT_EQ(load("{backend: reference, threads: 2}").threads, 2);
  EXPECT_THROW(load("{strategy: magic}"), ConfigError);
  EXPECT_THROW(load("{threads: 0}"), ConfigError);
  EXPECT_EQ(load("{strategy: in_graph, replicas: 4}").replicas, 4);
  EXPECT_THAT(MessageOf<ConfigError>([&] { load("{replicas: 2}"); }),
              ::testing::HasSubstr("replicas: single is one replica"));
}

TEST(ReplicationConfigTest, RefusesWhatDoesNotGoTogether) {
  const auto problem = [](const std::string& text) {
    return MessageOf<ConfigError>([&] {
      config::Load<ReplicationConfig>(
          config::Document::FromText("run.yaml", text));
    });
  };
  const std::string servers = "{strategy: parameter_server, ";
  EXPECT_THAT(problem(servers + "staleness: -1}"),
              ::testing::StartsWith("run.yaml:1:41: staleness: -1 is outside "
                                    "[0, 1000000] ("));
  EXPECT_EQ(problem(servers + "servers: []}"),
            "run.yaml:1:39: servers: has 0 elements; the allowed number is "
            "[1, 64]");
  EXPECT_EQ(problem(servers + "replicas: 5, replicas_per_group: 2}"),
            "run.yaml:1:63: replicas_per_group: 5 replicas cannot be divided "
            "evenly into groups of 2; allowed: 1, 5");
  EXPECT_EQ(problem("{strategy: between_graph, replicas: 6, "
                    "replicas_per_process: 4}"),
            "run.yaml:1:62: replicas_per_process: 6 replicas cannot be divided "
            "evenly into processes of 4; allowed: 1, 2, 3, 6");
  EXPECT_EQ(problem("{strategy: in_graph, replicas_per_process: 2}"),
            "run.yaml:1:44: replicas_per_process: belongs to strategy "
            "between_graph");
  EXPECT_EQ(problem("{strategy: hogwild, staleness: 2}"),
            "run.yaml:1:32: staleness: belongs to strategy parameter_server");
  EXPECT_EQ(problem("{strategy: hogwild, logical_devices: 2}"),
            "run.yaml:1:38: logical_devices: is not for hogwild: its "
            "replicas do not make every step together");
  EXPECT_EQ(
      problem("{strategy: in_graph, push_interval: 2}"),
      "run.yaml:1:37: push_interval: belongs to strategy parameter_server");
  EXPECT_EQ(problem(servers + "replicas: 4, replicas_per_group: 4, "
                              "processes_per_group: 3}"),
            "run.yaml:1:87: processes_per_group: a group of 4 replicas cannot "
            "be divided evenly among 3 processes");
  EXPECT_EQ(problem(servers + "replicas: 2, replicas_per_group: 2, "
                              "processes_per_group: 2, "
                              "rendezvous: 'tcp://a:1'}"),
            "run.yaml:1:102: rendezvous: the processes of a group of "
            "parameter_server meet by a file, one for each group; allowed: "
            "auto, or a path");
  EXPECT_EQ(problem("{strategy: hogwild, top_k: 0.1}"),
            "run.yaml:1:28: top_k: is not for hogwild: its replicas do not "
            "make every step together");
  EXPECT_EQ(problem("{strategy: hogwild, backend: cuda}"),
            "run.yaml:1:30: backend: cuda is not for strategy hogwild, whose "
            "variables are in host memory; allowed: cpu");
  EXPECT_EQ(problem("{strategy: hogwild, wire: bf16}"),
            "run.yaml:1:27: wire: is not for hogwild: its replicas do not "
            "make every step together");
  EXPECT_EQ(problem("{strategy: in_graph, wire: bf16, top_k: 0.1}"),
            "run.yaml:1:41: top_k: sends f32; hint: wire: f32");
  EXPECT_EQ(problem("{strategy: in_graph, servers: [tcp://a:1]}"),
            "run.yaml:1:31: servers: belongs to strategy parameter_server");
}

TEST(ReplicationConfigTest, GroupsAreThoseThatShareABatch) {
  const auto groups = [](const ReplicationConfig& c) {
    return std::pair(c.replicas_of_group(), c.num_groups());
  };
  EXPECT_EQ(groups({.strategy = &Strategy::kInGraph, .replicas = 4}),
            std::pair(4, 1));
  EXPECT_EQ(groups({.strategy = &Strategy::kHogwild, .replicas = 4}),
            std::pair(1, 4));
  ReplicationConfig servers{.strategy = &Strategy::kParameterServer,
                            .replicas = 4};
  EXPECT_EQ(groups(servers), std::pair(1, 4));
  servers.replicas_per_group = 2;
  EXPECT_EQ(groups(servers), std::pair(2, 2));
}

}  // namespace
}  // namespace replicant::replicator
