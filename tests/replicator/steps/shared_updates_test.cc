#include "replicator/steps/shared_updates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/graph/ops/optimizer.h"
#include "engine/nn/single_replica.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using ::testing::ElementsAre;
using testing::MessageOf;

constexpr CallSite kSite{"step.cc", 7};
constexpr ReplicaRank kRank{.id = 1, .count = 2};

// A trained matrix, its gradient on this replica, and the mean.
struct Problem {
  Problem() {
    x = graph.Input("x", DType::kF32, Shape({4, 3}));
    w = graph.AddVariable({.name = "w", .shape = Shape({3, 5})});
    const Output loss =
        graph::ReduceMean(graph::Square(graph::MatMul(x, graph.Read(w))));
    gradient = graph::Gradients(loss, {graph.Read(w)})[0];
    mean = AddAllReduce(gradient, ReduceOp::kMean, kRank, kSite);
  }

  Output Sgd(Output g, const nn::ClipOptions& clip = {}) {
    nn::SingleReplica replica(graph);
    return nn::Sgd(replica, "sgd", {w}, {g}, graph.Scalar(0.1, DType::kF32),
                   {.momentum = 0.9}, clip);
  }
  SharedProgram Share(const std::vector<Output>& outputs,
                      const std::vector<Output>& updates) {
    return ShareUpdates(graph::ExtractProgram(graph, outputs, updates), kRank,
                        num_replicas);
  }

  Graph graph;
  int num_replicas = kRank.count;
  Output x, gradient, mean;
  VariableId w = -1;
};

const graph::Node& Find(const graph::Program& program, std::string_view op) {
  const auto found = std::ranges::find_if(
      program.graph->nodes(),
      [&](const graph::Node& node) { return node.op->name == op; });
  EXPECT_NE(found, program.graph->nodes().end()) << op;
  return *found;
}

bool HasPlaceholders(const graph::Program& program) {
  return std::ranges::any_of(program.graph->nodes(),
                             [](const graph::Node& node) {
                               return PrimitiveOf(node) != Primitive::kNone;
                             });
}

TEST(ShareUpdatesTest, AnOptimizerSumsTheReplicasGradientsForItsPart) {
  Problem problem;
  const Output update = problem.Sgd(problem.mean);
  const SharedProgram shared = problem.Share({}, {update});
  EXPECT_FALSE(HasPlaceholders(shared.program));
  const graph::Node& node = Find(shared.program, "SgdUpdate");
  const auto part = graph::UpdatePartOf(node.attributes);
  EXPECT_EQ(part.index, 1);
  EXPECT_EQ(part.count, 2);
  EXPECT_EQ(part.num_gradients, 2);
  EXPECT_EQ(part.gradient_factor, 0.5);
  // its own gradient stands for every replica's
  ASSERT_EQ(node.inputs.size(), 6U);
  EXPECT_EQ(node.inputs[2], node.inputs[3]);
  EXPECT_THAT(shared.variables.shared, ElementsAre("sgd/momentum/w", "w"));
  EXPECT_TRUE(shared.variables.own.empty());
}

TEST(ShareUpdatesTest, WhatElseNeedsTheMeanKeepsIt) {
  // the norm of all gradients wants the whole mean
  Problem problem;
  const Output update = problem.Sgd(problem.mean, {.max_global_norm = 1.0});
  const SharedProgram shared = problem.Share({}, {update});
  EXPECT_TRUE(HasPlaceholders(shared.program));
  const graph::Node& node = Find(shared.program, "SgdUpdate");
  const auto part = graph::UpdatePartOf(node.attributes);
  EXPECT_EQ(part.count, 2);
  EXPECT_EQ(part.num_gradients, 1);
  EXPECT_EQ(node.inputs.size(), 5U);
}

// Those of other processes are elsewhere: the update is cut alone.
TEST(ShareUpdatesTest, WithReplicasElsewhereGradientsAreReducedFirst) {
  Problem problem;
  problem.num_replicas = 4;
  const Output update = problem.Sgd(problem.mean);
  const SharedProgram shared = problem.Share({}, {update});
  EXPECT_TRUE(HasPlaceholders(shared.program));
  const auto part =
      graph::UpdatePartOf(Find(shared.program, "SgdUpdate").attributes);
  EXPECT_EQ(part.index, 1);
  EXPECT_EQ(part.count, 2);
  EXPECT_EQ(part.num_gradients, 1);
  EXPECT_THAT(shared.variables.shared, ElementsAre("sgd/momentum/w", "w"));
}

TEST(ShareUpdatesTest, GradientsThatAreRoundedOnTheirWayAreReducedFirst) {
  Problem problem;
  const Output mean = AddAllReduce(problem.gradient, ReduceOp::kMean, kRank,
                                   kSite, {.dtype = DType::kBF16});
  const SharedProgram shared = problem.Share({}, {problem.Sgd(mean)});
  EXPECT_TRUE(HasPlaceholders(shared.program));
}

TEST(ShareUpdatesTest, AGradientThatIsAVariableIsReducedFirst) {
  // decay towards the replicas' mean: w itself is what they reduce
  Problem problem;
  const Output mean = AddAllReduce(problem.graph.Read(problem.w),
                                   ReduceOp::kMean, kRank, kSite);
  const SharedProgram shared = problem.Share({}, {problem.Sgd(mean)});
  EXPECT_TRUE(HasPlaceholders(shared.program));
}

TEST(ShareUpdatesTest, WhatAReplicaUpdatesAloneIsItsOwn) {
  Problem problem;
  Graph& g = problem.graph;
  const VariableId count = g.AddVariable({.name = "count",
                                          .dtype = DType::kI64,
                                          .shape = Shape({}),
                                          .is_trainable = false});
  const Output counted = graph::Assign(g, count, graph::Add(g.Read(count), 1));
  // each goes its own way first, and only then do they agree
  const Output local = problem.Sgd(problem.gradient);
  const Output agreed = graph::Assign(
      g, problem.w,
      AddAllReduce(g.Read(problem.w), ReduceOp::kMean, kRank, kSite));
  const SharedProgram shared = problem.Share({}, {local, agreed, counted});
  EXPECT_TRUE(shared.variables.shared.empty());
  EXPECT_THAT(shared.variables.own,
              ElementsAre("count", "sgd/momentum/w", "w"));
  EXPECT_EQ(
      graph::UpdatePartOf(Find(shared.program, "SgdUpdate").attributes).count,
      1);
}

ReplicationConfig OnCpu(int replicas, int devices = 1) {
  return {.strategy = replicas == 1 ? &Strategy::kSingle : &Strategy::kInGraph,
          .replicas = replicas,
          .backend = "cpu",
          .logical_devices = devices};
}

VariableId AddWeight(Graph& g, const std::string& name, const Shape& shape) {
  return g.AddVariable({.name = name, .dtype = DType::kF64, .shape = shape});
}

TEST(SharedUpdatesTest, StepsSeeWhatOthersTrain) {
  // the first step only reads what the second one trains, as a GAN's do
  const auto replicator = MakeReplicator(
      {.strategy = &Strategy::kInGraph, .replicas = 4, .backend = "reference"},
      /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 6, WholeValue));
  const Shape shape({1, kColumns});
  const auto read = replicator->Build(
      *input, [&](ReplicaContext& replica, const Inputs& batch) {
        Graph& g = replica.graph();
        const Output w = g.Read(AddWeight(g, "w", shape));
        return StepOutputs{.values = {{"w", replica.AllGather(w)},
                                      {"x", replica.AllSum(batch.at("x"))}},
                           .updates = {}};
      });
  const auto train = replicator->Build(
      *input, [&](ReplicaContext& replica, const Inputs& batch) {
        Graph& g = replica.graph();
        const VariableId w = AddWeight(g, "w", shape);
        const Output mean = replica.AllReduce(batch.at("x"), ReduceOp::kMean);
        return StepOutputs{.values = {},
                           .updates = {nn::Sgd(replica, "sgd", {w}, {mean},
                                               g.Scalar(1.0, DType::kF64))}};
      });
  std::vector<double> expected(kColumns, 0.0);
  for (int64_t s = 0; s < 6; s += 2) {
    ASSERT_EQ(train->Run(kNoWait), NextResult::kOk);
    ASSERT_EQ(read->Run(kNoWait), NextResult::kOk);
    for (int64_t c = 0; c < kColumns; ++c) {
      double sum = 0.0;
      for (int64_t r = 0; r < 4; ++r) sum += WholeValue(s, r, c);
      expected[static_cast<size_t>(c)] -= sum / 4.0;
      for (int64_t r = 0; r < 4; ++r) {
        EXPECT_EQ(Values(*read, "w")[static_cast<size_t>(r * kColumns + c)],
                  expected[static_cast<size_t>(c)]);
      }
    }
  }
}

TEST(SharedUpdatesTest, AnUpdateThatCannotBeCutIsMadeOnce) {
  const auto replicator = MakeReplicator(
      {.strategy = &Strategy::kInGraph, .replicas = 4, .backend = "reference"},
      /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 3, WholeValue));
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& /*batch*/) {
        Graph& g = replica.graph();
        const VariableId w = AddWeight(g, "w", Shape({}));
        const Output more = graph::Assign(g, w, graph::Add(g.Read(w), 1.0));
        return StepOutputs{.values = {{"w", replica.AllGather(g.Read(w))}},
                           .updates = {more}};
      });
  for (int s = 1; s <= 3; ++s) {
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    EXPECT_EQ(Values(*step, "w"), std::vector<double>(4, s));
  }
}

TEST(SharedUpdatesTest, RefusesAVariableThatIsUpdatedInTwoWays) {
  const auto replicator = MakeReplicator(
      {.strategy = &Strategy::kInGraph, .replicas = 2, .backend = "reference"},
      /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(2, 2, WholeValue));
  // "slot" belongs to nobody's optimizer here
  const auto average = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& /*batch*/) {
        Graph& g = replica.graph();
        const VariableId slot = g.AddVariable({.name = "sgd/momentum/w",
                                               .dtype = DType::kF64,
                                               .shape = Shape({}),
                                               .is_trainable = false});
        return StepOutputs{.values = {{"slot", g.Read(slot)}}, .updates = {}};
      });
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] {
        replicator->Build(*input, [](ReplicaContext& replica,
                                     const Inputs& batch) {
          Graph& g = replica.graph();
          const VariableId w = AddWeight(g, "w", Shape({}));
          const Output mean = replica.AllReduce(
              graph::ReduceMean(batch.at("x")), ReduceOp::kMean);
          return StepOutputs{.values = {},
                             .updates = {nn::Sgd(replica, "sgd", {w}, {mean},
                                                 g.Scalar(1.0, DType::kF64),
                                                 {.momentum = 0.9})}};
        });
      }),
      "'sgd/momentum/w' is updated by all replicas of a process together in "
      "one step and by each replica alone in another; hint: build the step "
      "with its optimizer first");
}

// Two layers of more elements than a replica updates at a time, trained on f32
// by an optimizer that sums gradients itself, or, where their norm is asked
// for, one that is given their mean.
std::map<std::string, std::vector<float>> Train(const ReplicationConfig& config,
                                                bool has_momentum,
                                                bool needs_means) {
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(Rows(8, 5, RealValue));
  const auto step = replicator->Build(*input, [&](ReplicaContext& replica,
                                                  const Inputs& batch) {
    Graph& g = replica.graph();
    const auto normal = [](RandomStream& random, MutableTensorView value) {
      for (float& v : value.Span<float>()) {
        v = static_cast<float>(0.1 * random.Normal());
      }
    };
    const VariableId first = g.AddVariable({.name = "first",
                                            .shape = Shape({kColumns, 3001}),
                                            .initializer = normal});
    const VariableId second = g.AddVariable(
        {.name = "second", .shape = Shape({3001, 2}), .initializer = normal});
    const Output x = graph::Cast(batch.at("x"), DType::kF32);
    const Output hidden = graph::Tanh(graph::MatMul(x, g.Read(first)));
    Output loss;
    {
      const auto device =
          replica.LogicalDevice(replica.num_logical_devices() - 1);
      loss = graph::ReduceMean(
          graph::Square(graph::MatMul(hidden, g.Read(second))));
    }
    const std::vector<Output> means = replica.MeanGradients(
        graph::Gradients(loss, {g.Read(first), g.Read(second)}));
    StepOutputs outputs;
    if (needs_means) {
      outputs.values.emplace_back("norm", graph::GlobalNorm(means));
    }
    const std::vector<VariableId> parameters = {first, second};
    const Output rate = g.Scalar(0.01, DType::kF32);
    if (has_momentum) {
      outputs.updates = {nn::Sgd(replica, "sgd", parameters, means, rate,
                                 {.momentum = 0.9, .weight_decay = 0.01})};
    } else {
      const nn::StepCounter counter = nn::AddStepCounter(g);
      outputs.updates = {
          nn::Adam(replica, "adam", parameters, means, rate, counter.value),
          counter.advance};
    }
    return outputs;
  });
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  return VariablesOf<float>(*replicator);
}

TEST(SharedUpdatesTest, GradientsSummedOnTheWayGiveTheBitsOfTheirMean) {
  for (const char* backend : {"reference", "cpu"}) {
    for (const bool has_momentum : {true, false}) {
      for (const int replicas : {2, 4}) {
        ReplicationConfig config = OnCpu(replicas);
        config.backend = backend;
        EXPECT_EQ(Train(config, has_momentum, false),
                  Train(config, has_momentum, true))
            << backend;
      }
    }
  }
}

TEST(SharedUpdatesTest, LogicalDevicesShareWithTheirLikes) {
  EXPECT_EQ(Train(OnCpu(2, 2), true, false), Train(OnCpu(2), true, false));
  EXPECT_EQ(Train(OnCpu(2, 2), false, true), Train(OnCpu(2), false, true));
}

}  // namespace
}  // namespace replicant::replicator
