#include "replicator/inspect/variable_replicator.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/error.h"
#include "tests/replicator/replication_cases.h"
#include "tests/support/message_of.h"

namespace replicant::replicator {
namespace {

// Would catch a check of checkpoints that needs the learner's devices or the
// memory of its step, or that misses the sums of gradients.
TEST(VariableReplicatorTest, HasTheVariablesOfATrainingThatItCannotRun) {
  constexpr int64_t kManyRows = int64_t{1} << 30;
  const auto variables =
      MakeVariableReplicator({.strategy = &Strategy::kInGraph,
                              .replicas = 4,
                              .backend = "cuda",
                              .accumulation_steps = 2,
                              .devices = {64}},
                             /*seed=*/3);
  const auto input =
      variables->MakeInput(Rows(kManyRows, /*length=*/1, RealValue));
  int64_t rows = 0;
  const auto step = variables->Build(
      *input, [&](ReplicaContext& replica, const Inputs& batch) {
        rows = batch.at("x").shape()[0];
        return NetworkStep(replica, batch);
      });
  EXPECT_EQ(rows, kManyRows / 4);
  EXPECT_EQ(variables->accumulation_steps(), 2);
  EXPECT_EQ(testing::MessageOf<InvalidArgument>(
                [&] { static_cast<void>(step->Run(kNoWait)); }),
            "a step whose variables are read does not run");

  const auto trained = MakeReplicator(
      {.backend = "reference", .accumulation_steps = 2}, /*seed=*/3);
  const auto small = trained->MakeInput(Rows(4, /*length=*/1, RealValue));
  const auto trains = trained->Build(*small, NetworkStep);
  EXPECT_EQ(VariablesOf<double>(*variables), VariablesOf<double>(*trained));
}

}  // namespace
}  // namespace replicant::replicator
