// Run by mpirun, with one replica in each process and, of at most four
// processes, with two; every process runs all tests.
#include <gtest/gtest.h>

#include "replicator/comm/mpi_communicator.h"
#include "tests/learner/workloads/d4pg_replicas.h"
#include "tests/learner/workloads/mpi_replicas.h"

namespace replicant::learner {
namespace {

using replicator::Strategy;

// By how many replicas are in each process.
class D4pgBetweenGraphTest : public ::testing::TestWithParam<int> {
 protected:
  static replicator::ReplicationConfig Config(const Strategy* strategy,
                                              const char* backend) {
    return ReplicasOfProcesses(strategy, backend, GetParam());
  }
};

INSTANTIATE_TEST_SUITE_P(ReplicasPerProcess, D4pgBetweenGraphTest,
                         ::testing::Range(1,
                                          comm::NumMpiProcesses() > 4 ? 2 : 3));

TEST_P(D4pgBetweenGraphTest, LearnsFromStateAsOneReplica) {
  CheckLearnsAsOneReplica(StateCase(DType::kF64),
                          Config(&Strategy::kBetweenGraph, "reference"));
  CheckLearnsAsOneReplica(StateCase(DType::kF32),
                          Config(&Strategy::kBetweenGraph, "cpu"));
}

TEST_P(D4pgBetweenGraphTest, LearnsFromPixelsAsOneReplica) {
  CheckLearnsAsOneReplica(PixelCase(DType::kF64),
                          Config(&Strategy::kBetweenGraph, "reference"));
  CheckLearnsAsOneReplica(PixelCase(DType::kF32),
                          Config(&Strategy::kBetweenGraph, "cpu"));
}

TEST_P(D4pgBetweenGraphTest, LearnsARepresentationAsOneReplica) {
  CheckLearnsAsOneReplica(RepresentationCase(DType::kF64),
                          Config(&Strategy::kBetweenGraph, "reference"));
  CheckLearnsAsOneReplica(RepresentationCase(DType::kF32),
                          Config(&Strategy::kBetweenGraph, "cpu"));
}

TEST_P(D4pgBetweenGraphTest, GivesTheBitsOfReplicasInOneProcess) {
  const D4pgRun between = TrainD4pg(StateCase(DType::kF32),
                                    Config(&Strategy::kBetweenGraph, "cpu"));
  const D4pgRun in_graph =
      TrainD4pg(StateCase(DType::kF32), Config(&Strategy::kInGraph, "cpu"));
  EXPECT_EQ(between.last, in_graph.last);
  EXPECT_EQ(between.priorities, in_graph.priorities);
}

}  // namespace
}  // namespace replicant::learner
