#include "evaluation/best_policy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "agents/agent_steps.h"
#include "base/fs.h"
#include "engine/runtime/checkpoint.h"
#include "tests/support/graph_runner.h"

namespace replicant::evaluation {
namespace {

using testing::GraphRunner;
using testing::Values;

class BestPolicyTest : public ::testing::Test {
 protected:
  BestPolicyTest() {
    runner_.graph().AddVariable(
        {.name = "w", .dtype = DType::kF64, .shape = Shape({1})});
    runner_.store().Declare(runner_.graph());
  }
  // Each policy is its step.
  void Offer(int64_t step, double mean) {
    runner_.store().Set(
        "w",
        Values(DType::kF64, Shape({1}), {static_cast<double>(step)}).view());
    // as a process that has started again
    BestPolicy(run_.path())
        .Offer({.step = step, .mean = mean}, runner_.store(), 10 * step);
  }
  int64_t BestStep() const {
    const auto best = BestPolicy::Find(run_.path());
    return best ? runtime::ReadCheckpointInfo(best->checkpoint).step : -1;
  }

  GraphRunner runner_;
  TemporaryFolder run_;
};

TEST_F(BestPolicyTest, KeepsTheOneWithTheLargestReturn) {
  EXPECT_EQ(BestStep(), -1);
  Offer(10, NAN);
  EXPECT_EQ(BestStep(), -1);
  Offer(20, -3.0);
  EXPECT_EQ(BestStep(), 20);
  Offer(30, 5.0);
  Offer(40, 5.0);
  Offer(50, NAN);
  Offer(60, 4.0);
  EXPECT_EQ(BestStep(), 30);

  const auto best = BestPolicy::Find(run_.path());
  EXPECT_EQ(best->checkpoint, run_.path() / "best" / "step-000000000030");
  EXPECT_EQ(best->mean_return, 5.0);
  const auto info = runtime::LoadCheckpoint(best->checkpoint, runner_.store());
  EXPECT_EQ(runner_.store().Get("w").Span<double>()[0], 30.0);
  EXPECT_EQ(agents::AgentStepsIn(info.metadata), 300);
  // the one before is gone
  EXPECT_FALSE(
      std::filesystem::exists(run_.path() / "best" / "step-000000000020"));
}

// The one before stays until the new one is on the disk.
TEST_F(BestPolicyTest, AStepMayBeKeptAgain) {
  Offer(30, 5.0);
  const auto before = BestPolicy::Find(run_.path())->checkpoint;
  Offer(30, 6.0);
  EXPECT_EQ(BestPolicy::Find(run_.path())->checkpoint,
            run_.path() / "best" / "step-000000000030-2");
  EXPECT_FALSE(std::filesystem::exists(before));
}

TEST_F(BestPolicyTest, ADamagedOneIsReplaced) {
  Offer(20, 9.0);
  AtomicWriteFile(BestPolicy::Find(run_.path())->checkpoint / "checkpoint.json",
                  "{");
  EXPECT_EQ(BestStep(), -1);
  Offer(30, 1.0);
  EXPECT_EQ(BestStep(), 30);
}

}  // namespace
}  // namespace replicant::evaluation
