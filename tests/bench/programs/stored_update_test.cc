#include "bench/programs/stored_update.h"

#include <gtest/gtest.h>

#include "bench/programs/time_update.h"
#include "tests/bench/programs/small_update.h"

namespace replicant::learner {
namespace {

// catches a learner that takes no batch, and turns that measure nothing
TEST(StoredUpdateTest, AnUpdateAndTheStepAloneAreTimedInTurns) {
  StoredUpdate update(SmallUpdate(), {.num_frames = kSmallFrames});
  const auto backend = kernels::MakeBackend("cpu");
  StepAlone step(probe::d4pg::BuildStepGraph(SmallUpdate(), DType::kF32),
                 *backend, {});
  const UpdateTimes times = TimeUpdate(step, update, /*seconds=*/0.0);
  EXPECT_FALSE(times.alone.empty());
  EXPECT_FALSE(times.updates.empty());
  EXPECT_GT(times.alone.front(), 0.0);
  EXPECT_GT(times.updates.front(), 0.0);
  EXPECT_GE(times.wait_ms, 0.0);
  // the CPU has no table
  EXPECT_EQ(times.sent_frames, 0.0);
}

}  // namespace
}  // namespace replicant::learner
