// Gradients of which each replica sends the largest elements and keeps the
// others for its next step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "replicator/make_replicator.h"
#include "tests/replicator/top_k_cases.h"

namespace replicant::replicator {
namespace {

using ::testing::ElementsAre;

ReplicationConfig InGraph(int replicas, double top_k) {
  return {.strategy = &Strategy::kInGraph,
          .replicas = replicas,
          .backend = "reference",
          .top_k = top_k};
}

TEST(TopKWireTest, AllElementsAreTheBitsOfF32) {
  for (const int replicas : {2, 4, 8}) {
    const TopKRun exact = TrainWithTopK(InGraph(replicas, 0.0), 20);
    const TopKRun all = TrainWithTopK(InGraph(replicas, 1.0), 20);
    EXPECT_EQ(all.losses, exact.losses) << replicas;
    EXPECT_EQ(all.variables, exact.variables) << replicas;
    EXPECT_NE(TrainWithTopK(InGraph(replicas, 0.1), 20).variables,
              exact.variables);
  }
}

float MeanOfLast(const std::vector<float>& losses) {
  return std::accumulate(losses.end() - 50, losses.end(), 0.0F) / 50.0F;
}

// A twentieth of the elements, 30 and 10 of 600 and 200, comes to the loss of
// all of them. Without the residual most weights would never move.
TEST(TopKWireTest, ATwentiethLearnsWhatAllLearn) {
  for (const int replicas : {2, 4}) {
    const TopKRun exact = TrainWithTopK(InGraph(replicas, 0.0), 600);
    const TopKRun sparse = TrainWithTopK(InGraph(replicas, 0.05), 600);
    EXPECT_LT(MeanOfLast(exact.losses), 0.02F * exact.losses[0]);
    EXPECT_LT(MeanOfLast(sparse.losses), 1.5F * MeanOfLast(exact.losses));
    const TopKRun start = TrainWithTopK(InGraph(replicas, 0.05), 0);
    for (const auto& [name, value] : sparse.variables) {
      int64_t num_moved = 0;
      for (size_t i = 0; i < value.size(); ++i) {
        num_moved += value[i] != start.variables.at(name)[i] ? 1 : 0;
      }
      EXPECT_GT(num_moved, static_cast<int64_t>(value.size()) * 9 / 10) << name;
    }
  }
}

// Later steps send the remainder of a step: the means of all steps add up to
// the mean of all input, to the bit.
TEST(TopKWireTest, NothingIsLost) {
  const auto replicator = MakeReplicator(InGraph(2, 0.3), /*seed=*/1);
  // whole numbers in the first step and zeros after it
  const auto value = [](int64_t step, int64_t row, int64_t column) {
    return step == 0 ? WholeValue(step, row, column) : 0.0;
  };
  const auto input = replicator->MakeInput(Rows(2, 3, value));
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        const Output x = graph::Cast(batch.at("x"), DType::kF32);
        return StepOutputs{.values = {{"mean", replica.MeanGradients({x})[0]}},
                           .updates = {}};
      });
  std::vector<float> total(kColumns);
  std::vector<std::vector<float>> steps;
  while (step->Run(kNoWait) == NextResult::kOk) {
    const auto mean = step->value("mean").Span<float>();
    steps.emplace_back(mean.begin(), mean.end());
    for (size_t c = 0; c < mean.size(); ++c) total[c] += mean[c];
  }
  // one element of three in each: 1 4 7 and 6 2 5 came
  EXPECT_THAT(steps, ElementsAre(ElementsAre(3, 0, 3.5), ElementsAre(0, 2, 2.5),
                                 ElementsAre(0.5, 1, 0)));
  EXPECT_THAT(total, ElementsAre(3.5, 3, 6));
}

TEST(TopKWireTest, WorksWithSeveralBatchesOfAnUpdate) {
  ReplicationConfig config = InGraph(2, 0.05);
  config.accumulation_steps = 2;
  const TopKRun sparse = TrainWithTopK(config, 600);
  EXPECT_LT(MeanOfLast(sparse.losses), 0.1F * sparse.losses[0]);
}

}  // namespace
}  // namespace replicant::replicator
