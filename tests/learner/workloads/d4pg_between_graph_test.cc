// Run by mpirun, one replica in each process; every process runs all tests.
#include <gtest/gtest.h>

#include "core/comm/mpi_communicator.h"
#include "tests/learner/workloads/d4pg_replicas.h"

namespace replicant::learner {
namespace {

using replicator::Strategy;

replicator::ReplicationConfig Config(Strategy strategy, const char* backend) {
  static const int num_processes = comm::MakeMpiCommunicator()->size();
  return {.strategy = strategy,
          .replicas = num_processes,
          .backend = backend,
          .timeout_s = 100.0};
}

TEST(D4pgBetweenGraphTest, LearnsFromStateAsOneReplica) {
  CheckLearnsAsOneReplica(StateCase(DType::kF64),
                          Config(Strategy::kBetweenGraph, "reference"));
  CheckLearnsAsOneReplica(StateCase(DType::kF32),
                          Config(Strategy::kBetweenGraph, "cpu"));
}

TEST(D4pgBetweenGraphTest, LearnsFromPixelsAsOneReplica) {
  CheckLearnsAsOneReplica(PixelCase(DType::kF64),
                          Config(Strategy::kBetweenGraph, "reference"));
  CheckLearnsAsOneReplica(PixelCase(DType::kF32),
                          Config(Strategy::kBetweenGraph, "cpu"));
}

TEST(D4pgBetweenGraphTest, GivesTheBitsOfReplicasInOneProcess) {
  const D4pgRun between =
      TrainD4pg(StateCase(DType::kF32), Config(Strategy::kBetweenGraph, "cpu"));
  const D4pgRun in_graph =
      TrainD4pg(StateCase(DType::kF32), Config(Strategy::kInGraph, "cpu"));
  EXPECT_EQ(between.last, in_graph.last);
  EXPECT_EQ(between.priorities, in_graph.priorities);
}

}  // namespace
}  // namespace replicant::learner
