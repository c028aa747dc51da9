// The strategy of examples/own_strategy, which lies outside the tree.
#include "examples/own_strategy/local_sgd.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "base/fs.h"
#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "learner/learner.h"
#include "learner/workloads/resnet_workload.h"
#include "replicator/make_replicator.h"
#include "tests/learner/workloads/small_image_models.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

constexpr int64_t kRows = 8;  // of a replica's batch

template <int kPeriod>
ReplicationConfig LocalSgdOf(int replicas) {
  return {.strategy = &kLocalSgd<kPeriod>,
          .replicas = replicas,
          .backend = "reference"};
}

// Rows of a batch of kRows for each of `num_groups`, so that all groups
// together have the rows of one larger batch.
InputFn RowsOfGroup(int num_groups, int64_t length) {
  return [=](const InputContext& context) {
    return std::make_unique<RowsPipeline>(
        context, kRows * num_groups / context.num_groups, length,
        [group = context.group_id](int64_t step, int64_t row, int64_t column) {
          return RealValue(step, group * kRows + row, column);
        });
  };
}

// Learns the sum of the columns by plain SGD.
StepOutputs LinearStep(ReplicaContext& replica, const Inputs& batch) {
  Graph& g = replica.graph();
  const VariableId w = g.AddVariable(
      {.name = "w",
       .dtype = DType::kF64,
       .shape = Shape({kColumns, 1}),
       .initializer = [](RandomStream& random, MutableTensorView value) {
         for (double& v : value.Span<double>()) {
           v = random.Normal();
         }
       }});
  const Output x = batch.at("x");
  const Output error =
      graph::Sub(graph::MatMul(x, g.Read(w)),
                 graph::ReduceSum(x, {.axes = {1}, .keep_dims = true}));
  const Output loss = graph::ReduceMean(graph::Square(error));
  const Optimizer sgd =
      replica.WrapOptimizer([&](const std::vector<VariableId>& variables,
                                const std::vector<Output>& gradients) {
        return graph::Assign(
            g, variables[0],
            graph::Sub(g.Read(variables[0]), graph::Mul(gradients[0], 0.1)));
      });
  const Output update = sgd({w}, graph::Gradients(loss, {g.Read(w)}));
  return {.values = {{"loss", replica.AllReduce(loss, ReduceOp::kMean)}},
          .updates = {update}};
}

std::vector<double> Train(const ReplicationConfig& config, int num_replicas,
                          int64_t length) {
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(RowsOfGroup(num_replicas, length));
  const auto step = replicator->Build(*input, LinearStep);
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  return VariablesOf<double>(*replicator).at("w");
}

TEST(LocalSgdTest, EveryStepItIsTheMeanOfGradients) {
  for (const int replicas : {1, 2, 4, 8}) {
    const ReplicationConfig one = {.backend = "reference"};
    EXPECT_LE(NormOfDifference(
                  Train(LocalSgdOf<1>(replicas), replicas, /*length=*/10),
                  Train(one, replicas, /*length=*/10)),
              1e-9)
        << replicas;
  }
}

// With a period of four, two steps alone and a mean are what two lone learners
// would bring together.
TEST(LocalSgdTest, ReplicasLearnAloneUntilTheyAreAveraged) {
  const auto alone = [](int group) {
    const auto replicator =
        MakeReplicator({.backend = "reference"}, /*seed=*/3);
    const auto input = replicator->MakeInput([&](InputContext context) {
      context.group_id = group;
      context.num_groups = 2;
      return RowsOfGroup(2, /*length=*/2)(context);
    });
    const auto step = replicator->Build(*input, LinearStep);
    while (step->Run(kNoWait) == NextResult::kOk) {
    }
    return VariablesOf<double>(*replicator).at("w");
  };
  const std::vector<double> first = alone(0);
  const std::vector<double> second = alone(1);
  ASSERT_GT(NormOfDifference(first, second), 1e-3);
  std::vector<double> mean;
  for (size_t i = 0; i < first.size(); ++i) {
    mean.push_back((first[i] + second[i]) / 2);
  }
  // reading the variables averages
  EXPECT_LE(NormOfDifference(Train(LocalSgdOf<4>(2), 2, /*length=*/2), mean),
            1e-12);
}

TEST(LocalSgdTest, LearnsWithFewMeans) {
  const std::vector<double> best(kColumns, 1.0);
  const auto distance = [&](const ReplicationConfig& config, int64_t length) {
    return NormOfDifference(Train(config, 4, length), best);
  };
  const double after = distance(LocalSgdOf<8>(4), /*length=*/400);
  EXPECT_LT(after, distance(LocalSgdOf<8>(4), /*length=*/1));
  EXPECT_NEAR(after, distance(LocalSgdOf<1>(4), /*length=*/400), 0.02 * after);
}

TEST(LocalSgdTest, WhatIsWrittenReachesAllReplicas) {
  const auto replicator = MakeReplicator(LocalSgdOf<4>(2), /*seed=*/3);
  const auto input = replicator->MakeInput(RowsOfGroup(2, /*length=*/1));
  const auto step = replicator->Build(*input, LinearStep);
  // where the gradient is 0
  const std::vector<double> ones(kColumns, 1.0);
  replicator->variables().Set(
      "w", TensorView(DType::kF64, Shape({kColumns, 1}), ones.data()));
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(step->num_steps(), 2);
  EXPECT_LE(NormOfDifference(VariablesOf<double>(*replicator).at("w"), ones),
            1e-12);
}

// Would catch a run that waits for ever for the last batch of a round.
TEST(LocalSgdTest, ARunEndsWithAWholeRound) {
  const TemporaryFolder folder;
  learner::ResNetWorkload workload(
      learner::SmallResNet(), /*batch_size=*/4, graph::Precision::kF32,
      /*seed=*/1,
      MakeReplicator({.strategy = &kLocalSgd<2>, .replicas = 2}, /*seed=*/1));
  int num_calls = 0;
  learner::Learner learner({.limits = {.max_steps = 5}, .parameter_bind = ""},
                           folder.path(), &workload,
                           {.should_stop = [&] { return ++num_calls > 100; }});
  EXPECT_EQ(learner.Run(), learner::EndReason::kStepLimit);
  EXPECT_EQ(learner.step(), 6);
  EXPECT_EQ(workload.State().at("batches"), "6");
}

TEST(LocalSgdTest, AConfigurationNamesIt) {
  StrategyRegistry strategies = StrategyRegistry::BuiltIn();
  strategies.Add(kLocalSgd<8>);
  const auto config =
      config::LoadBy<ReplicationConfig>(
          config::Document::FromText(
              "run.yaml",
              "{strategy: local_sgd, replicas: 3, backend: cuda, "
              "wire: bf16}"),
          [&](config::Reader& reader) {
            return ReplicationConfig::Read(reader, strategies);
          })
          .config;
  EXPECT_EQ(config.strategy, &kLocalSgd<8>);
  EXPECT_EQ(config.num_groups(), 3);
}

}  // namespace
}  // namespace replicant::replicator
