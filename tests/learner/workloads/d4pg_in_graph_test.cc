#include <gtest/gtest.h>

#include "tests/learner/workloads/d4pg_replicas.h"

namespace replicant::learner {
namespace {

using replicator::Strategy;

class D4pgInGraphTest : public ::testing::TestWithParam<int> {
 protected:
  static replicator::ReplicationConfig Config(const char* backend) {
    return {.strategy = &Strategy::kInGraph,
            .replicas = GetParam(),
            .backend = backend};
  }
};

TEST_P(D4pgInGraphTest, LearnsFromStateAsOneReplica) {
  CheckLearnsAsOneReplica(StateCase(DType::kF64), Config("reference"));
  CheckLearnsAsOneReplica(StateCase(DType::kF32), Config("cpu"));
}

TEST_P(D4pgInGraphTest, LearnsFromPixelsAsOneReplica) {
  CheckLearnsAsOneReplica(PixelCase(DType::kF64), Config("reference"));
  CheckLearnsAsOneReplica(PixelCase(DType::kF32), Config("cpu"));
}

INSTANTIATE_TEST_SUITE_P(Replicas, D4pgInGraphTest, ::testing::Values(2, 4, 8));

}  // namespace
}  // namespace replicant::learner
