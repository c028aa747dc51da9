// Run by mpirun, with one replica in each process and, of at most four
// processes, with two; every process runs all tests.
#include <gtest/gtest.h>

#include "replicator/comm/mpi_communicator.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/joint_cases.h"
#include "tests/replicator/replication_cases.h"
#include "tests/replicator/top_k_cases.h"
#include "tests/replicator/work_cases.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;

// By how many replicas are in each process.
class BetweenGraphTest : public ::testing::TestWithParam<int> {
 protected:
  static ReplicationConfig BetweenGraph() {
    return {.strategy = &Strategy::kBetweenGraph,
            .replicas = comm::NumMpiProcesses() * GetParam(),
            .backend = "reference",
            .timeout_s = 60.0,
            .replicas_per_process = GetParam()};
  }
};

INSTANTIATE_TEST_SUITE_P(ReplicasPerProcess, BetweenGraphTest,
                         ::testing::Range(1,
                                          comm::NumMpiProcesses() > 4 ? 2 : 3));

TEST_P(BetweenGraphTest, PrimitivesGiveWhatTheySay) {
  CheckPrimitives(BetweenGraph());
}

TEST_P(BetweenGraphTest, GradientsFlowThroughPrimitives) {
  CheckGradients(BetweenGraph());
}

TEST_P(BetweenGraphTest, AVariablePerReplicaStaysItsOwn) {
  CheckKeepsVariablesPerReplica(BetweenGraph());
}

TEST_P(BetweenGraphTest, SharesOutPiecesOfWork) {
  CheckSharesWork(BetweenGraph());
  CheckPiecesOfSeveralVariables(BetweenGraph());
}

TEST_P(BetweenGraphTest, ReplicasTrainAsOne) {
  CheckTrainsAsOneReplica(BetweenGraph());
}

TEST_P(BetweenGraphTest, MakesBothUpdatesOfAGanAsOne) {
  CheckTrainsGanAsOneReplica(BetweenGraph());
}

TEST_P(BetweenGraphTest, GivesTheBitsOfReplicasInOneProcess) {
  ReplicationConfig in_graph = BetweenGraph();
  in_graph.strategy = &Strategy::kInGraph;
  in_graph.replicas_per_process = 1;
  EXPECT_EQ(TrainNetwork(BetweenGraph()), TrainNetwork(in_graph));
}

TEST_P(BetweenGraphTest, SendsTheLargestElementsAsReplicasOfOneProcessDo) {
  ReplicationConfig config = BetweenGraph();
  config.top_k = 0.05;
  ReplicationConfig in_graph = config;
  in_graph.strategy = &Strategy::kInGraph;
  in_graph.replicas_per_process = 1;
  EXPECT_EQ(TrainWithTopK(config, 10).variables,
            TrainWithTopK(in_graph, 10).variables);
}

TEST_P(BetweenGraphTest, RefusesReplicasThatCallOtherPrimitives) {
  const auto replicator = MakeReplicator(BetweenGraph(), /*seed=*/1);
  const int n = replicator->num_replicas();
  const auto input = replicator->MakeInput(Rows(n, 1, WholeValue));
  const std::string message = MessageOf<InvalidArgument>([&] {
    replicator->Build(*input, [&](ReplicaContext& replica,
                                  const Inputs& batch) {
      const bool is_last = replica.replica_id() == n - 1;
      const Output x = batch.at("x");
      const CallSite site{"step.cc", is_last ? 9 : 7};
      return StepOutputs{.values = {{"x", is_last ? replica.AllMax(x, site)
                                                  : replica.AllSum(x, site)}},
                         .updates = {}};
    });
  });
  EXPECT_TRUE(message.starts_with(
      fmt::format("replicas 0 and {} differ in primitive 1: AllReduce sum of "
                  "f64[1,3] (step.cc:7) and AllReduce max of f64[1,3] "
                  "(step.cc:9); hint: ",
                  n - 1)))
      << message;
}

TEST_P(BetweenGraphTest, AStepThatOneProcessCannotBuildIsAnErrorOnAll) {
  const auto replicator = MakeReplicator(BetweenGraph(), /*seed=*/1);
  const int n = replicator->num_replicas();
  const auto input = replicator->MakeInput(Rows(n, 1, WholeValue));
  const std::string message = MessageOf<Error>([&] {
    replicator->Build(*input, [&](ReplicaContext& replica, const Inputs&) {
      if (replica.replica_id() == n - 1) throw IoError("no such network");
      return StepOutputs{};
    });
  });
  const bool is_last = replicator->process_id() == comm::NumMpiProcesses() - 1;
  EXPECT_EQ(message,
            is_last ? "no such network"
                    : fmt::format("replica {} cannot be built: no such network",
                                  n - 1));
}

TEST_P(BetweenGraphTest, OneThatWaitsOrStopsDoesSoForAll) {
  const auto replicator = MakeReplicator(BetweenGraph(), /*seed=*/1);
  const int n = replicator->num_replicas();
  const bool is_leader = replicator->process_id() == 0;
  RowsPipeline* pipeline = nullptr;
  const auto input = replicator->MakeInput([&](const InputContext& context) {
    auto made = std::make_unique<RowsPipeline>(context, n, 9, WholeValue);
    pipeline = made.get();
    return made;
  });
  const auto step = replicator->Build(
      *input, [](ReplicaContext& replica, const Inputs& batch) {
        return StepOutputs{.values = {{"x", replica.AllGather(batch.at("x"))}},
                           .updates = {}};
      });
  pipeline->is_late = is_leader;
  EXPECT_EQ(step->Run(kNoWait), NextResult::kTimeout);
  pipeline->is_late = false;
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  // what the others had fetched has not been lost
  for (int64_t r = 0; r < n; ++r) {
    EXPECT_EQ(Values(*step, "x")[static_cast<size_t>(r * kColumns)],
              WholeValue(0, r, 0));
  }
  if (is_leader) {
    replicator->Stop();
  } else {
    EXPECT_EQ(step->Run(kNoWait), NextResult::kEnd);
  }
  EXPECT_EQ(step->Run(kNoWait), NextResult::kEnd);
}

TEST_P(BetweenGraphTest, WhatTheFirstProcessSetsReachesAll) {
  const auto replicator = MakeReplicator(BetweenGraph(), /*seed=*/1);
  const int n = replicator->num_replicas();
  const auto input = replicator->MakeInput(Rows(n, 1, WholeValue));
  const auto step = replicator->Build(*input, [](ReplicaContext& replica,
                                                 const Inputs& /*batch*/) {
    Graph& g = replica.graph();
    const VariableId w =
        g.AddVariable({.name = "w", .dtype = DType::kF64, .shape = Shape({})});
    return StepOutputs{.values = {{"w", replica.AllGather(g.Read(w))}},
                       .updates = {}};
  });
  if (replicator->process_id() == 0) {
    const double value = 2.5;
    replicator->variables().Set("w",
                                TensorView(DType::kF64, Shape({}), &value));
  }
  ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
  EXPECT_EQ(Values(*step, "w"),
            std::vector<double>(static_cast<size_t>(n), 2.5));
}

TEST_P(BetweenGraphTest, WantsAsManyProcessesAsItsReplicasNeed) {
  ReplicationConfig config = BetweenGraph();
  config.replicas += GetParam();
  const int n = comm::NumMpiProcesses();
  EXPECT_EQ(MessageOf<ConfigError>([&] { MakeReplicator(config, 1); }),
            fmt::format("replication: between_graph of {} replicas, {} "
                        "in each process, wants {} processes, not {}; hint: "
                        "mpirun -n {}",
                        config.replicas, GetParam(), n + 1, n, n + 1));
}

}  // namespace
}  // namespace replicant::replicator
