#include "replicator/strategies/synchronous_replicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <latch>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/graph/ops/random.h"
#include "replicator/make_replicator.h"
#include "replicator/steps/replica_team.h"
#include "tests/replicator/replication_cases.h"
#include "tests/replicator/work_cases.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;

constexpr CallSite kSite{"step.cc", 7};
constexpr CallSite kOtherSite{"step.cc", 9};

ReplicationConfig InGraph(int replicas) {
  return {.strategy = &Strategy::kInGraph,
          .replicas = replicas,
          .backend = "reference"};
}

class InGraphTest : public ::testing::TestWithParam<int> {};

TEST_P(InGraphTest, PrimitivesGiveWhatTheySay) {
  CheckPrimitives(InGraph(GetParam()));
}

TEST_P(InGraphTest, GradientsFlowThroughPrimitives) {
  CheckGradients(InGraph(GetParam()));
}

TEST_P(InGraphTest, ReplicasTrainAsOne) {
  CheckTrainsAsOneReplica(InGraph(GetParam()));
}

TEST_P(InGraphTest, AVariablePerReplicaStaysItsOwn) {
  CheckKeepsVariablesPerReplica(InGraph(GetParam()));
}

TEST_P(InGraphTest, SharesOutPiecesOfWork) {
  CheckSharesWork(InGraph(GetParam()));
  CheckPiecesOfSeveralVariables(InGraph(GetParam()));
}

TEST_P(InGraphTest, PiecesMayBeInfinite) {
  CheckPiecesMayBeInfinite(InGraph(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Replicas, InGraphTest, ::testing::Values(1, 2, 4, 8));

// What Build() says of a step on `n` replicas.
std::string BuildError(int n, const StepFn& step_fn) {
  const auto replicator = MakeReplicator(InGraph(n), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(n, 1, WholeValue));
  return MessageOf<InvalidArgument>(
      [&] { replicator->Build(*input, step_fn); });
}

StepOutputs ValueOnly(Output x) {
  return {.values = {{"value", x}}, .updates = {}};
}

constexpr const char* kHint =
    "; hint: every replica calls the same primitives on the same types in the "
    "same order, and computes the same from the results";

// A structure of every kind that nested.h names.
struct Everything {
  Output one;
  std::map<std::string, std::vector<Output>> by_name;
  std::pair<Output, std::optional<Output>> pair;
  std::optional<Output> none;
  std::tuple<Output, std::array<Output, 2>> tuple;

  void ForEachMember(const auto& visit) {
    visit(one), visit(by_name), visit(pair), visit(none), visit(tuple);
  }
};

TEST(SynchronousReplicatorTest, ReducesAndGathersStructures) {
  const auto replicator = MakeReplicator(
      {.strategy = &Strategy::kInGraph, .replicas = 4, .backend = "reference"},
      /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 1, WholeValue));
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        const Output x = batch.at("x");
        const auto times = [&](double factor) { return graph::Mul(x, factor); };
        const Everything all{.one = times(1.0),
                             .by_name = {{"b", {times(2.0), times(3.0)}},
                                         {"a", {times(4.0)}},
                                         {"empty", {}}},
                             .pair = {times(5.0), times(6.0)},
                             .none = std::nullopt,
                             .tuple = {times(7.0), {times(8.0), times(9.0)}}};
        StepOutputs outputs;
        const auto give = [&](Everything reduced) {
          nn::ForEachOutput(reduced, [&](Output& output) {
            outputs.values.emplace_back(std::to_string(outputs.values.size()),
                                        output);
          });
          EXPECT_FALSE(reduced.none.has_value());
        };
        give(replica.AllReduce(all, ReduceOp::kSum));
        give(replica.Broadcast(all, /*source=*/2));
        const auto gathered = replica.AllGather(std::map<int, Output>{{1, x}});
        outputs.values.emplace_back("gathered", gathered.at(1));
        return outputs;
      });
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  // the members in order, in a map by key
  constexpr std::array kFactors = {1.0, 4.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0, 9.0};
  for (int64_t c = 0; c < kColumns; ++c) {
    double sum = 0.0;
    for (int64_t r = 0; r < 4; ++r) {
      sum += WholeValue(0, r, c);
      EXPECT_EQ(
          Values(*step, "gathered")[static_cast<size_t>(r * kColumns + c)],
          WholeValue(0, r, c));
    }
    for (size_t i = 0; i < kFactors.size(); ++i) {
      const auto at = static_cast<size_t>(c);
      EXPECT_EQ(Values(*step, std::to_string(i))[at], kFactors[i] * sum);
      EXPECT_EQ(Values(*step, std::to_string(i + kFactors.size()))[at],
                kFactors[i] * WholeValue(0, 2, c));
    }
  }
}

TEST(SynchronousReplicatorTest, RefusesPiecesThatCannotBeReduced) {
  const auto one = [](Output x) {
    return ReplicaContext::Piece([x]() -> std::vector<Output> { return {x}; });
  };
  const ReplicaContext::Piece none = []() -> std::vector<Output> { return {}; };
  const auto reduce = [&](const std::vector<ReplicaContext::Piece>& more,
                          ReduceOp op, bool has_first) {
    return BuildError(2, [&](ReplicaContext& replica, const Inputs& batch) {
      std::vector<ReplicaContext::Piece> pieces = more;
      if (has_first) pieces.insert(pieces.begin(), one(batch.at("x")));
      return ValueOnly(replica.MapReduce(pieces, op, kSite).at(0));
    });
  };
  EXPECT_EQ(reduce({}, ReduceOp::kSum, /*has_first=*/false),
            "step.cc:7: MapReduce: there are no pieces");
  EXPECT_EQ(reduce({none}, ReduceOp::kSum, /*has_first=*/true),
            "step.cc:7: MapReduce: piece 1 has 0 results, piece 0 has 1");
}

TEST(SynchronousReplicatorTest, RefusesPiecesOfTypesThatCannotBeReduced) {
  // of x, f64[1,3], and what `make` makes of it
  const auto reduce = [&](ReduceOp op,
                          const std::function<Output(Output)>& make,
                          bool has_x) {
    return BuildError(2, [&](ReplicaContext& replica, const Inputs& batch) {
      const Output x = batch.at("x");
      std::vector<ReplicaContext::Piece> pieces;
      if (has_x) {
        pieces.emplace_back([x]() -> std::vector<Output> { return {x}; });
      }
      pieces.emplace_back([&]() -> std::vector<Output> { return {make(x)}; });
      return ValueOnly(replica.MapReduce(pieces, op, kSite).at(0));
    });
  };
  const auto sum = [](Output x) { return graph::ReduceSum(x); };
  const auto whole = [](Output x) { return graph::Cast(x, DType::kI64); };
  const auto positive = [](Output x) { return graph::Greater(x, x); };
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
    EXPECT_EQ(reduce(op, sum, /*has_x=*/true),
              "step.cc:7: MapReduce: result 0 of piece 1 is f64[], but piece 0 "
              "has f64[1,3]");
  }
  EXPECT_EQ(reduce(ReduceOp::kProd, whole, /*has_x=*/true),
            "step.cc:7: MapReduce: result 0 of piece 1 is i64[1,3], but piece "
            "0 has f64[1,3]");
  EXPECT_EQ(reduce(ReduceOp::kMax, positive, /*has_x=*/false),
            "step.cc:7: MapReduce: cannot reduce bool; hint: cast it");
  EXPECT_EQ(reduce(ReduceOp::kMean, whole, /*has_x=*/false),
            "step.cc:7: MapReduce: x is i64; a mean is for floating tensors");
}

TEST(SynchronousReplicatorTest, RefusesReplicasThatCallOtherPrimitives) {
  EXPECT_EQ(BuildError(3,
                       [](ReplicaContext& replica, const Inputs& batch) {
                         const Output x = batch.at("x");
                         if (replica.replica_id() == 2) {
                           return ValueOnly(replica.AllMax(x, kOtherSite));
                         }
                         return ValueOnly(replica.AllSum(x, kSite));
                       }),
            std::string("replicas 0 and 2 differ in primitive 1: AllReduce sum "
                        "of f64[1,3] (step.cc:7) and AllReduce max of f64[1,3] "
                        "(step.cc:9)") +
                kHint);
}

TEST(SynchronousReplicatorTest, RefusesReplicasOfOtherShapes) {
  EXPECT_EQ(BuildError(2,
                       [](ReplicaContext& replica, const Inputs& batch) {
                         Output x = batch.at("x");
                         if (replica.replica_id() == 1) {
                           x = graph::Concat({x, x}, 0);
                         }
                         return ValueOnly(replica.AllGather(x, kSite));
                       }),
            std::string("replicas 0 and 1 differ in primitive 1: AllGather of "
                        "f64[1,3] (step.cc:7) and AllGather of f64[2,3] "
                        "(step.cc:7)") +
                kHint);
}

TEST(SynchronousReplicatorTest, RefusesReplicasOfAnotherOrder) {
  EXPECT_EQ(
      BuildError(2,
                 [](ReplicaContext& replica, const Inputs& batch) {
                   const Output x = batch.at("x");
                   StepOutputs outputs;
                   for (int i = 0; i < 2; ++i) {
                     const bool is_sum =
                         (i == 0) == (replica.replica_id() == 0);
                     const Output y = is_sum
                                          ? replica.AllSum(x, kSite)
                                          : replica.Broadcast(x, 0, kOtherSite);
                     outputs.values.emplace_back(is_sum ? "sum" : "first", y);
                   }
                   return outputs;
                 }),
      std::string("replicas 0 and 1 differ in primitive 1: AllReduce sum of "
                  "f64[1,3] (step.cc:7) and Broadcast from replica 0 of "
                  "f64[1,3] (step.cc:9)") +
          kHint);
}

TEST(SynchronousReplicatorTest, RefusesAReplicaThatLeavesACallOut) {
  EXPECT_EQ(BuildError(2,
                       [](ReplicaContext& replica, const Inputs& batch) {
                         Output x = replica.AllSum(batch.at("x"), kSite);
                         if (replica.replica_id() == 0) {
                           x = replica.AllMin(x, kOtherSite);
                         }
                         return ValueOnly(x);
                       }),
            std::string("replicas 0 and 1 differ in primitive 2: AllReduce min "
                        "of f64[1,3] (step.cc:9) and none after step.cc:7") +
                kHint);
}

TEST(SynchronousReplicatorTest, RefusesVariablesThatDiffer) {
  EXPECT_EQ(BuildError(2,
                       [](ReplicaContext& replica, const Inputs& /*batch*/) {
                         Graph& g = replica.graph();
                         const VariableId w = g.AddVariable(
                             {.name = "w",
                              .shape = Shape({1 + replica.replica_id()})});
                         return ValueOnly(g.Read(w));
                       }),
            std::string("replicas 0 and 1 differ in variable 1: 'w' f32[1], "
                        "trained and 'w' f32[2], trained") +
                kHint);
}

TEST(SynchronousReplicatorTest, RefusesUpdatesThatDiffer) {
  const std::string message =
      BuildError(2, [](ReplicaContext& replica, const Inputs& /*batch*/) {
        Graph& g = replica.graph();
        const VariableId w = g.AddVariable({.name = "w", .shape = Shape({1})});
        const Output next =
            graph::Add(g.Read(w), 1.0 + replica.replica_id(), kSite);
        return StepOutputs{.values = {},
                           .updates = {graph::Assign(g, w, next, kOtherSite)}};
      });
  EXPECT_TRUE(message.starts_with(
      "replicas 0 and 1 differ in update 1: Assign of 'w' ["))
      << message;
  EXPECT_TRUE(message.find("(step.cc:9) and Assign of 'w' [") !=
              std::string::npos)
      << message;
}

TEST(SynchronousReplicatorTest, RefusesATrainedVariableThatWouldDrift) {
  EXPECT_EQ(BuildError(2,
                       [](ReplicaContext& replica, const Inputs& batch) {
                         Graph& g = replica.graph();
                         const VariableId w =
                             g.AddVariable({.name = "w",
                                            .dtype = DType::kF64,
                                            .shape = Shape({1, kColumns})});
                         return StepOutputs{.values = {},
                                            .updates = {graph::Assign(
                                                g, w, batch.at("x"), kSite)}};
                       }),
            "step.cc:7: 'w' is trained, but every replica would update it "
            "differently; hint: reduce its gradient with WrapOptimizer or "
            "AllReduce");
}

TEST(SynchronousReplicatorTest, RefusesAMeanOfWholeNumbers) {
  EXPECT_EQ(
      BuildError(
          2,
          [](ReplicaContext& replica, const Inputs& batch) {
            Graph& g = replica.graph();
            const VariableId n = g.AddVariable({.name = "n",
                                                .dtype = DType::kI32,
                                                .shape = Shape({1, kColumns}),
                                                .is_trainable = false});
            const Output x = graph::Cast(batch.at("x"), DType::kI32);
            return StepOutputs{.values = {},
                               .updates = {graph::Assign(g, n, x, kSite)}};
          }),
      "step.cc:7: 'n' differs between the replicas, and i32 has no mean; hint: "
      "reduce the values that update it, or declare kFirst or kPerReplica");
}

TEST(SynchronousReplicatorTest, RefusesAGradientOfAProduct) {
  EXPECT_EQ(BuildError(2,
                       [](ReplicaContext& replica, const Inputs& batch) {
                         const Output x = batch.at("x");
                         const Output y = graph::ReduceSum(
                             replica.AllReduce(x, ReduceOp::kProd, kSite));
                         return ValueOnly(graph::Gradients(y, {x})[0]);
                       }),
            "step.cc:7: AllReduce prod 'AllReduce' has no gradient; hint: put "
            "StopGradient in front of it, if none should flow");
}

TEST(SynchronousReplicatorTest, VariablesThatAreSetReachAllReplicas) {
  const auto replicator = MakeReplicator(InGraph(4), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(4, 2, WholeValue));
  const auto step = replicator->Build(*input, [](ReplicaContext& replica,
                                                 const Inputs& /*batch*/) {
    Graph& g = replica.graph();
    const VariableId w =
        g.AddVariable({.name = "w", .dtype = DType::kF64, .shape = Shape({})});
    return ValueOnly(replica.AllGather(g.Read(w)));
  });
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  const double value = 2.5;
  replicator->variables().Set("w", TensorView(DType::kF64, Shape({}), &value));
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Values(*step, "value"), std::vector<double>(4, 2.5));
}

TEST(SynchronousReplicatorTest, ABatchIsKeptWhileAnotherPipelineIsLate) {
  const auto replicator = MakeReplicator(InGraph(2), /*seed=*/1);
  std::vector<RowsPipeline*> pipelines;
  const auto input = replicator->MakeInput(
      [&](const InputContext& context) {
        auto made = std::make_unique<RowsPipeline>(context, 2, 2, WholeValue);
        pipelines.push_back(made.get());
        return made;
      },
      InputMode::kPerReplica);
  ASSERT_EQ(pipelines.size(), 2U);
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        return ValueOnly(replica.AllGather(batch.at("x")));
      });
  pipelines[1]->is_late = true;
  EXPECT_EQ(step->Run(kNoWait), NextResult::kTimeout);
  EXPECT_EQ(step->Run(kNoWait), NextResult::kTimeout);
  pipelines[1]->is_late = false;
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Values(*step, "value")[0], WholeValue(0, 0, 0));
  EXPECT_EQ(Values(*step, "value")[kColumns], WholeValue(0, 1, 0));
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(step->Run(kNoWait), NextResult::kEnd);
}

TEST(SynchronousReplicatorTest, AReplicaThatFailsEndsTheStepOfAll) {
  const auto replicator = MakeReplicator(InGraph(2), /*seed=*/1);
  // only the square of the second replica's row is not finite
  const auto value = [](int64_t, int64_t row, int64_t) {
    return row == 1 ? 1e200 : 1.0;
  };
  const auto input = replicator->MakeInput(Rows(2, 2, value));
  const auto step = replicator->Build(
      *input,
      [](ReplicaContext& replica, const Inputs& batch) {
        return ValueOnly(replica.AllSum(graph::Square(batch.at("x"))));
      },
      {.check_finite = true});
  EXPECT_THAT(MessageOf<runtime::NumericError>(
                  [&] { static_cast<void>(step->Run(kNoWait)); }),
              ::testing::HasSubstr("Square 'Square': element 0 of output 0"));
  EXPECT_THROW(static_cast<void>(step->Run(kNoWait)), Error);
}

TEST(SynchronousReplicatorTest, ABatchWithNaNRunsOnNoReplica) {
  const auto replicator = MakeReplicator(InGraph(2), /*seed=*/1);
  const auto input =
      replicator->MakeInput(Rows(2, 3, [](int64_t step, int64_t row, int64_t) {
        return step == 1 && row == 1 ? NAN : 1.0;
      }));
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        return ValueOnly(replica.AllSum(batch.at("x")));
      });
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(MessageOf<runtime::NumericError>(
                [&] { static_cast<void>(step->Run(kNoWait)); }),
            "batch 1: input 'x': row 1, element 0, is nan; want finite "
            "numbers");
}

TEST(SynchronousReplicatorTest, SeveralStepsShareOneInput) {
  const auto replicator = MakeReplicator(InGraph(2), /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(2, 2, WholeValue));
  const StepFn sum = [](ReplicaContext& replica, const Inputs& batch) {
    return ValueOnly(replica.AllSum(batch.at("x")));
  };
  const auto first = replicator->Build(*input, sum);
  const auto second = replicator->Build(*input, sum);
  ASSERT_EQ(first->Run(kNoWait), NextResult::kOk);
  ASSERT_EQ(second->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Values(*first, "value")[0],
            WholeValue(0, 0, 0) + WholeValue(0, 1, 0));
  EXPECT_EQ(Values(*second, "value")[0],
            WholeValue(1, 0, 0) + WholeValue(1, 1, 0));
  EXPECT_EQ(second->Run(kNoWait), NextResult::kEnd);
}

TEST(SynchronousReplicatorTest, RandomNumbersGoByTheGlobalRow) {
  const auto draw = [](const ReplicationConfig& config) {
    const auto replicator = MakeReplicator(config, /*seed=*/5);
    const auto input = replicator->MakeInput(Rows(4, 1, WholeValue));
    const auto step = replicator->Build(
        *input, [](ReplicaContext& replica, const Inputs& batch) {
          Graph& g = replica.graph();
          const int64_t rows = batch.at("x").shape()[0];
          const Output random =
              graph::RandomUniform({.name = "noise",
                                    .step = g.Scalar(3.0, DType::kI64),
                                    .first_row = replica.replica_id() * rows},
                                   DType::kF64, Shape({rows, 2}));
          return ValueOnly(replica.AllGather(random));
        });
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    return Values(*step, "value");
  };
  EXPECT_EQ(draw(InGraph(4)), draw({.backend = "reference"}));
}

TEST(SynchronousReplicatorTest, SaysWhatAStepWaitedFor) {
  const auto times = [](const ReplicationConfig& config, bool is_needed_late) {
    const auto replicator = MakeReplicator(config, /*seed=*/1);
    const auto input = replicator->MakeInput(Rows(2, 1, WholeValue));
    const auto step = replicator->Build(
        *input, [&](ReplicaContext& replica, const Inputs& batch) {
          const Output x = batch.at("x");
          if (!is_needed_late) return ValueOnly(replica.AllSum(x));
          // there is something to compute before the sum is needed
          const Output y = graph::Exp(graph::Mul(x, 0.1));
          return ValueOnly(graph::Add(replica.AllSum(x), y));
        });
    EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
    return step->reduce_times();
  };
  EXPECT_GT(times(InGraph(2), false).calls_s, 0.0);
  EXPECT_EQ(times(InGraph(2), false).buckets_s, 0.0);
  EXPECT_GT(times(InGraph(2), true).buckets_s, 0.0);
  EXPECT_EQ(times({.backend = "reference"}, true).buckets_s, 0.0);
  EXPECT_EQ(times({.backend = "reference"}, true).calls_s, 0.0);
}

TEST(SynchronousReplicatorTest, RefusesRowsThatCannotBeDivided) {
  const auto replicator = MakeReplicator(InGraph(3), /*seed=*/1);
  EXPECT_THROW(replicator->MakeInput(Rows(4, 1, WholeValue)), InvalidArgument);
}

TEST(CoreGroupsTest, AreNeighboursAndEven) {
  const CpuSet cpus({0, 2, 4, 6, 8});
  const std::vector<CpuSet> two = CoreGroups(cpus, 2);
  EXPECT_EQ(two[0].ToString(), "0,2");
  EXPECT_EQ(two[1].ToString(), "4,6,8");
  // more groups than processors
  const std::vector<CpuSet> many = CoreGroups(CpuSet({1, 3}), 5);
  EXPECT_EQ(many[0].ToString(), "1");
  EXPECT_EQ(many[1].ToString(), "3");
  EXPECT_EQ(many[4].ToString(), "1");
}

TEST(ReplicaTeamTest, RunsEveryMemberAndThrowsTheFirstError) {
  ReplicaTeam team(3);
  std::vector<int> counts(3, 0);
  for (int round = 0; round < 20; ++round) {
    team.Run([&](int i) { ++counts[static_cast<size_t>(i)]; });
  }
  EXPECT_EQ(counts, std::vector<int>(3, 20));
  EXPECT_EQ(MessageOf<IoError>([&] {
              team.Run([](int i) {
                if (i == 1) throw IoError("full");
              });
            }),
            "full");
  team.Run([&](int i) { ++counts[static_cast<size_t>(i)]; });
  EXPECT_EQ(counts, std::vector<int>(3, 21));
}

// However soon the others hear of it.
TEST(ReplicaTeamTest, WhatEndsTheOthersIsTheError) {
  ReplicaTeam team(3);
  for (int round = 0; round < 20; ++round) {
    std::latch has_failed(1), have_heard(2);
    EXPECT_EQ(MessageOf<Error>([&] {
                team.Run(
                    [&](int i) {
                      if (i == 1) throw IoError("full");
                      has_failed.wait();
                      have_heard.count_down();
                      throw CommError("heard of it");
                    },
                    [&](int i, const std::exception&) {
                      if (i != 1) return;
                      has_failed.count_down();
                      have_heard.wait();
                    });
              }),
              "full");
  }
}

}  // namespace
}  // namespace replicant::replicator
