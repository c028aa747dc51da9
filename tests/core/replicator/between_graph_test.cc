// Run by mpirun, one replica in each process; every process runs all tests.
#include <gtest/gtest.h>

#include "core/comm/mpi_communicator.h"
#include "tests/core/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;

ReplicationConfig BetweenGraph() {
  static const int num_processes = comm::MakeMpiCommunicator()->size();
  return {.strategy = Strategy::kBetweenGraph,
          .replicas = num_processes,
          .backend = "reference",
          .timeout_s = 60.0};
}

TEST(BetweenGraphTest, PrimitivesGiveWhatTheySay) {
  CheckPrimitives(BetweenGraph());
}

TEST(BetweenGraphTest, GradientsFlowThroughPrimitives) {
  CheckGradients(BetweenGraph());
}

TEST(BetweenGraphTest, ReplicasTrainAsOne) {
  CheckTrainsAsOneReplica(BetweenGraph());
}

TEST(BetweenGraphTest, GivesTheBitsOfReplicasInOneProcess) {
  ReplicationConfig in_graph = BetweenGraph();
  in_graph.strategy = Strategy::kInGraph;
  EXPECT_EQ(TrainNetwork(BetweenGraph()), TrainNetwork(in_graph));
}

TEST(BetweenGraphTest, RefusesReplicasThatCallOtherPrimitives) {
  const auto replicator = Replicator::Create(BetweenGraph(), /*seed=*/1);
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

TEST(BetweenGraphTest, AStepThatOneProcessCannotBuildIsAnErrorOnAll) {
  const auto replicator = Replicator::Create(BetweenGraph(), /*seed=*/1);
  const int n = replicator->num_replicas();
  const auto input = replicator->MakeInput(Rows(n, 1, WholeValue));
  const std::string message = MessageOf<Error>([&] {
    replicator->Build(*input, [&](ReplicaContext& replica, const Inputs&) {
      if (replica.replica_id() == 0) throw IoError("no such network");
      return StepOutputs{};
    });
  });
  EXPECT_EQ(message, replicator->process_id() == 0
                         ? "no such network"
                         : "replica 0 cannot be built: no such network");
}

TEST(BetweenGraphTest, OneThatWaitsOrStopsDoesSoForAll) {
  const auto replicator = Replicator::Create(BetweenGraph(), /*seed=*/1);
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

TEST(BetweenGraphTest, WhatTheFirstProcessSetsReachesAll) {
  const auto replicator = Replicator::Create(BetweenGraph(), /*seed=*/1);
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

TEST(BetweenGraphTest, WantsAsManyProcessesAsReplicas) {
  ReplicationConfig config = BetweenGraph();
  const int n = config.replicas++;
  EXPECT_EQ(MessageOf<ConfigError>([&] { Replicator::Create(config, 1); }),
            fmt::format("learner.replication: between_graph of {} replicas "
                        "wants as many processes, not {}; hint: mpirun -n {}",
                        n + 1, n, n + 1));
}

}  // namespace
}  // namespace replicant::replicator
