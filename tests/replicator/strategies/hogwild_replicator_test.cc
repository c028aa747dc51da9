#include "replicator/strategies/hogwild_replicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "engine/graph/ops/random.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using ::testing::HasSubstr;
using testing::MessageOf;

ReplicationConfig Hogwild(int replicas) {
  return {.strategy = &Strategy::kHogwild,
          .replicas = replicas,
          .backend = "reference"};
}

class HogwildTest : public ::testing::TestWithParam<int> {};

TEST(HogwildTest, OneReplicaComputesWhatSingleComputes) {
  EXPECT_EQ(TrainNetwork(Hogwild(1)), TrainNetwork({.backend = "reference"}));
}

// Each batch is for one replica, which takes all of its rows; a batch that is
// given is learned from once, whoever does it.
TEST_P(HogwildTest, EveryStepIsOneReplicasAndIsReturnedOnce) {
  const int n = GetParam();
  const auto replicator = MakeReplicator(Hogwild(n), /*seed=*/1);
  EXPECT_EQ(replicator->num_replicas(), n);
  EXPECT_EQ(replicator->process_id(), 0);
  std::set<int> groups;
  const auto input = replicator->MakeInput([&](const InputContext& context) {
    EXPECT_EQ(context.num_replicas, 1);
    EXPECT_EQ(context.num_groups, n);
    groups.insert(context.group_id);
    const double group = context.group_id;
    return std::make_unique<RowsPipeline>(
        context, 2, 20, [group](int64_t step, int64_t row, int64_t) {
          return 1000.0 * group + 10.0 * static_cast<double>(step) +
                 static_cast<double>(row);
        });
  });
  EXPECT_EQ(groups.size(), static_cast<size_t>(n));
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        EXPECT_EQ(replica.replica_id(), 0);
        EXPECT_EQ(replica.num_replicas(), 1);
        Graph& g = replica.graph();
        const nn::StepCounter counter = nn::AddStepCounter(g);
        return StepOutputs{.values = {{"x", replica.AllSum(batch.at("x"))}},
                           .updates = {counter.advance}};
      });
  std::vector<std::set<double>> seen(static_cast<size_t>(n));
  int64_t num_steps = 0;
  while (step->Run(kNoWait) == NextResult::kOk) {
    const double first = Values(*step, "x")[0];
    const auto group = static_cast<size_t>(step->group());
    EXPECT_EQ(static_cast<size_t>(first / 1000.0), group);
    EXPECT_TRUE(seen.at(group).insert(first).second) << first;
    ++num_steps;
    // what was begun is counted, whether it was returned or not
    const HostTensor counted = replicator->variables().Get("step");
    EXPECT_GE(counted.Span<int64_t>()[0], num_steps);
    EXPECT_LT(counted.Span<int64_t>()[0], num_steps + n);
  }
  EXPECT_EQ(num_steps, 20 * n);
  EXPECT_FALSE(replicator->HasResults());
  EXPECT_EQ(replicator->variables().Get("step").Span<int64_t>()[0], num_steps);
}

TEST_P(HogwildTest, ReplicasLearnTogether) {
  const auto replicator = MakeReplicator(Hogwild(GetParam()), /*seed=*/3);
  // the target is a function of the row, so that any order of batches does
  const auto input = replicator->MakeInput(Rows(16, 500, RealValue));
  const auto step = replicator->Build(*input, NetworkStep);
  double first = 0.0;
  double last = 0.0;
  for (int i = 0; step->Run(kNoWait) == NextResult::kOk; ++i) {
    const double loss = Values(*step, "loss")[0];
    if (i < 5) first += loss / 5.0;
    last += 0.05 * (loss - last);
  }
  EXPECT_LT(last, 0.2 * first);
}

INSTANTIATE_TEST_SUITE_P(Replicas, HogwildTest, ::testing::Values(1, 2, 4));

TEST(HogwildTest, EachReplicaDrawsRandomNumbersOfItsOwn) {
  const auto replicator = MakeReplicator(Hogwild(3), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(1, 1, WholeValue));
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        const auto counter = nn::AddStepCounter(replica.graph());
        const Output noise =
            graph::RandomNormal({.name = "noise", .step = counter.value},
                                DType::kF64, Shape({1, kColumns}));
        return StepOutputs{.values = {{"y", graph::Add(noise, batch.at("x"))}},
                           .updates = {}};
      });
  std::set<double> seen;
  while (step->Run(kNoWait) == NextResult::kOk) {
    seen.insert(Values(*step, "y")[0]);
  }
  EXPECT_EQ(seen.size(), 3U);
}

// A checkpoint equals one replica's, and every replica continues from values
// written into the variables.
TEST(HogwildTest, WritesReachEveryReplica) {
  const auto replicator = MakeReplicator(Hogwild(2), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(1, 50, WholeValue));
  const auto step = replicator->Build(*input, [](ReplicaContext& replica,
                                                 const Inputs& /*batch*/) {
    Graph& g = replica.graph();
    const VariableId w =
        g.AddVariable({.name = "w", .dtype = DType::kF64, .shape = Shape({})});
    const auto counter = nn::AddStepCounter(g);
    return StepOutputs{
        .values = {{"w", graph::Mul(g.Read(w), 1.0)},
                   {"step", graph::Cast(counter.value, DType::kF64)}},
        .updates = {counter.advance}};
  });
  for (int i = 0; i < 5; ++i) ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  HostTensor w(DType::kF64, Shape({}));
  w.mutable_view().Span<double>()[0] = 7.5;
  HostTensor count(DType::kI64, Shape({}));
  count.mutable_view().Span<int64_t>()[0] = 1000;
  replicator->variables().Set("w", w.view());
  replicator->variables().Set("step", count.view());
  // what was begun before is still to come
  std::set<int> groups;
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    if (i < 2) continue;
    EXPECT_EQ(Values(*step, "w")[0], 7.5);
    EXPECT_GE(Values(*step, "step")[0], 1000.0);
    groups.insert(step->group());
  }
}

TEST(HogwildTest, RefusesACounterThatMovesUnevenly) {
  const auto replicator = MakeReplicator(Hogwild(1), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(1, 10, WholeValue));
  const auto step = replicator->Build(*input, [](ReplicaContext& replica,
                                                 const Inputs& /*batch*/) {
    Graph& g = replica.graph();
    const VariableId n = g.AddVariable({.name = "doubled",
                                        .dtype = DType::kI64,
                                        .shape = Shape({}),
                                        .is_trainable = false});
    const Output twice = graph::Add(graph::Mul(g.Read(n), 2.0), 1.0);
    return StepOutputs{.values = {}, .updates = {graph::Assign(g, n, twice)}};
  });
  EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { (void)step->Run(kNoWait); }),
      "hogwild: counter 'doubled' grew by 1 in one step and by 2 in another; "
      "allowed: the same amount in every step, because replicas do not wait "
      "for each other");
}

TEST(HogwildTest, AStepThatFailsSaysSo) {
  const auto replicator = MakeReplicator(Hogwild(2), /*seed=*/1);
  const auto input =
      replicator->MakeInput(Rows(1, 10, [](int64_t step, int64_t, int64_t) {
        return step == 3 ? 1e200 : 1.0;
      }));
  const auto step = replicator->Build(
      *input,
      [](ReplicaContext& /*replica*/, const Inputs& batch) {
        return StepOutputs{.values = {{"y", graph::Square(batch.at("x"))}},
                           .updates = {}};
      },
      {.check_finite = true});
  EXPECT_THAT(MessageOf<runtime::NumericError>([&] {
                while (step->Run(kNoWait) == NextResult::kOk) {
                }
              }),
              HasSubstr("Square 'Square'"));
}

// A training with two kinds of steps, as a GAN's: what was begun is returned by
// the step that began it.
TEST(HogwildTest, TwoStepsTakeTurns) {
  const auto replicator = MakeReplicator(Hogwild(2), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(1, 40, WholeValue));
  const auto count = [&](const std::string& name) {
    return replicator->Build(
        *input, [name](ReplicaContext& replica, const Inputs& batch) {
          const auto counter = nn::AddStepCounter(replica.graph(), name);
          return StepOutputs{.values = {{"x", batch.at("x")}},
                             .updates = {counter.advance}};
        });
  };
  const auto first = count("first");
  const auto second = count("second");
  int64_t num_first = 0;
  int64_t num_second = 0;
  bool is_over = false;
  while (!is_over || replicator->HasResults()) {
    for (int i = 0; i < 3; ++i) {
      const NextResult result = first->Run(kNoWait);
      if (result == NextResult::kOk) ++num_first;
      is_over = result == NextResult::kEnd;
    }
    if (second->Run(kNoWait) == NextResult::kOk) ++num_second;
  }
  EXPECT_EQ(num_first + num_second, 80);
  EXPECT_GT(num_first, 2 * num_second);
  EXPECT_EQ(replicator->variables().Get("first").Span<int64_t>()[0], num_first);
  EXPECT_EQ(replicator->variables().Get("second").Span<int64_t>()[0],
            num_second);
}

}  // namespace
}  // namespace replicant::replicator
