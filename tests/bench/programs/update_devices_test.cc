// What travels in the steps that bench_learner times, on a device without a GPU
// (tests/support/fake_cuda).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/programs/step_alone.h"
#include "bench/programs/stored_update.h"
#include "tests/bench/programs/small_update.h"
#include "tests/learner/workloads/fake_devices.h"

namespace replicant::learner {
namespace {

using ::testing::Contains;
using ::testing::Not;

class UpdateDevicesTest : public FakeDevicesTest {};

TEST_F(UpdateDevicesTest, AStepAloneMovesNoBatch) {
  const auto backend = testing::MakeFakeCudaBackend(driver_);
  StepAlone step(probe::d4pg::BuildStepGraph(SmallUpdate(), DType::kF32),
                 *backend, {});
  // the second run is recorded
  for (int i = 0; i < 2; ++i) step.Run();
  const auto begin = static_cast<std::ptrdiff_t>(driver_->calls().size());
  step.Run();
  std::vector<std::string> calls = driver_->calls();
  calls.erase(calls.begin(), calls.begin() + begin);
  EXPECT_THAT(calls, Contains("cuGraphLaunch"));
  EXPECT_THAT(calls, Not(Contains("cuMemcpyHtoDAsync")));
  EXPECT_THAT(calls, Not(Contains("cuMemcpyDtoDAsync")));
}

// By the reader that programs/learner has, whose threads decode frames: what is
// kept is found on the device all the same.
TEST_F(UpdateDevicesTest, AnUpdateTakesNoFrameToTheDeviceTwice) {
  StoredUpdate update(SmallUpdate(),
                      {.replication = On(1, {}), .num_frames = kSmallFrames},
                      MakeBackends());
  const int64_t sent = update.num_sent();
  EXPECT_GE(sent, kSmallFrames / 2);
  for (int i = 0; i < 20; ++i) update.Run();
  // a tenth of what they have drawn: some frames were drawn for the first time
  EXPECT_LE(update.num_sent() - sent, 20 * 48 / 10);
}

}  // namespace
}  // namespace replicant::learner
