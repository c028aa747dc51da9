// TensorBoard's own reader finds what EventWriter writes: an independent check
// of every record checksum, field number and wire type.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fs.h"
#include "base/metrics/curves.h"
#include "base/metrics/event_writer.h"
#include "base/metrics/rewind.h"
#include "base/process.h"

namespace replicant::metrics {
namespace {

using std::chrono::seconds;

// The output of read_events.py for `folder`.
std::string ReadByTensorBoard(const std::filesystem::path& folder) {
  const CommandResult result = RunCommand(
      {.command = {REPLICANT_PYTHON,
                   REPLICANT_SOURCE_DIR "/tests/base/metrics/read_events.py",
                   folder.string()}},
      seconds(60));
  EXPECT_TRUE(result.status.ok()) << result.status.ToString();
  return result.output;
}

class EventWriterReadbackTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  FakeClock clock_;
};

TEST_F(EventWriterReadbackTest, TensorBoardFindsEveryKindOfValue) {
  clock_.Advance(seconds(1'700'000'000));
  {
    EventWriter writer({folder_.path(), seconds(10)}, clock_);
    writer.AddScalar("learner/loss", 0.25, 1);
    clock_.Advance(seconds(1));
    writer.AddScalar("learner/loss", std::numeric_limits<double>::quiet_NaN(),
                     2);
    writer.AddScalar("learner/loss", -1e300, int64_t{1} << 40);
    writer.AddImage("evaluation/video", 2, 3, "GIF89a", 3);
    const std::vector<float> values = {2, 2};
    writer.AddHistogram("learner/priorities", values, 4);
    writer.AddText("run/config", "# r\xC3\xA9sum\xC3\xA9\n\xFF", 5);
  }
  EXPECT_EQ(ReadByTensorBoard(folder_.path()),
            "scalar learner/loss 1 0.25 1700000000.0\n"
            "scalar learner/loss 2 nan 1700000001.0\n"
            "scalar learner/loss 1099511627776 -inf 1700000001.0\n"
            "image evaluation/video 3 (2, 3) b'GIF89a'\n"
            "histogram learner/priorities 4 2.0 2.0 2.0 4.0 8.0 [2.0] [2.0]\n"
            "text run/config 5 ['# résumé\\n\xEF\xBF\xBD']\n");
}

// Each point twice: over updates, and over frames in a separate folder.
TEST_F(EventWriterReadbackTest, CurvesAreOverUpdatesAndOverFrames) {
  {
    Curves curves("learner", {.folder = folder_.path()}, clock_);
    curves.AddScalar("a", 1, {.step = 10});
    curves.AddScalar("a", 2, {.step = 20, .frames = 400});
    const std::vector<float> values = {2, 2};
    curves.AddHistogram("b", values, {.step = 20, .frames = 400});
  }
  EXPECT_EQ(ReadByTensorBoard(folder_.path() / "by_updates" / "learner"),
            "scalar a 10 1.0 0.0\n"
            "scalar a 20 2.0 0.0\n"
            "histogram b 20 2.0 2.0 2.0 4.0 8.0 [2.0] [2.0]\n");
  EXPECT_EQ(ReadByTensorBoard(folder_.path() / "by_frames" / "learner"),
            "scalar a 400 2.0 0.0\n"
            "histogram b 400 2.0 2.0 2.0 4.0 8.0 [2.0] [2.0]\n");
}

// A run that was started again: its two files read as one series.
TEST_F(EventWriterReadbackTest, TensorBoardJoinsTheFilesOfARestartedRun) {
  EventWriter({folder_.path()}, clock_).AddScalar("a", 1, 10);
  clock_.Advance(seconds(5));
  EventWriter({folder_.path()}, clock_).AddScalar("a", 2, 20);
  EXPECT_EQ(ReadByTensorBoard(folder_.path()),
            "scalar a 10 1.0 0.0\n"
            "scalar a 20 2.0 5.0\n");
}

// A run that is killed at step 40 and goes on from its checkpoint of step 20:
// each tag has one branch, over both axes, in a file of the dead process and in
// one of its successor. TensorBoard's other loader would drop what does not
// grow, and this one shows all.
TEST_F(EventWriterReadbackTest, ARunThatGoesBackLeavesOneBranch) {
  const auto add = [](Curves& curves, int64_t step) {
    const auto value = static_cast<double>(step);
    curves.AddScalar("a", value, {.step = step, .frames = 8 * step});
  };
  {
    Curves killed("learner", {.folder = folder_.path()}, clock_);
    for (const int64_t step : {10, 20, 30, 40}) add(killed, step);
  }
  clock_.Advance(seconds(5));
  RewindRun(folder_.path(), 20, 160);
  Curves resumed("learner", {.folder = folder_.path()}, clock_);
  for (const int64_t step : {25, 35, 45}) add(resumed, step);
  // and once more while the process lives
  clock_.Advance(seconds(1));
  resumed.Rewind(34, 34 * 8);
  add(resumed, 36);
  resumed.Flush();
  EXPECT_EQ(ReadByTensorBoard(folder_.path() / "by_updates" / "learner"),
            "scalar a 10 10.0 0.0\n"
            "scalar a 20 20.0 0.0\n"
            "scalar a 25 25.0 5.0\n"
            "scalar a 36 36.0 6.0\n");
  EXPECT_EQ(ReadByTensorBoard(folder_.path() / "by_frames" / "learner"),
            "scalar a 80 10.0 0.0\n"
            "scalar a 160 20.0 0.0\n"
            "scalar a 200 25.0 5.0\n"
            "scalar a 288 36.0 6.0\n");
}

// Three processes write curves of one run while a reader watches: its first
// Reload() comes between their first points and their second ones.
TEST_F(EventWriterReadbackTest, AReaderSeesAllWritersOfALiveRun) {
  const EventWriterOptions options{.folder = folder_.path(),
                                   .flush_interval = Clock::Duration::zero()};
  Curves learner("learner", options, clock_);
  Curves fleet("fleet", options, clock_);
  Curves evaluator("evaluator", options, clock_);
  const auto add = [&](int64_t step) {
    learner.AddScalar("a", 1, {.step = step, .frames = 8 * step});
    fleet.AddScalar("b", 1, {.step = step, .frames = 8 * step});
    evaluator.AddScalar("c", 1, {.step = step, .frames = 8 * step});
  };
  add(1);
  const auto begun = folder_.path() / "begun";
  const auto go = folder_.path() / "go";
  Process reader({.command = {REPLICANT_PYTHON,
                              std::string(REPLICANT_SOURCE_DIR) +
                                  "/tests/base/metrics/watch_events.py",
                              folder_.path(), begun, go},
                  .stdout_file = folder_.path() / "out",
                  .stderr_file = folder_.path() / "err"});
  const auto give_up = Clock::Real().Now() + seconds(60);
  while (!std::filesystem::exists(begun) && Clock::Real().Now() < give_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  add(2);
  AtomicWriteFile(go, "");
  const auto ended = reader.Wait(seconds(60));
  EXPECT_TRUE(ended && ended->ok()) << ReadFile(folder_.path() / "err");
  EXPECT_EQ(ReadFile(folder_.path() / "out"),
            "by_frames/evaluator c [8, 16]\n"
            "by_frames/fleet b [8, 16]\n"
            "by_frames/learner a [8, 16]\n"
            "by_updates/evaluator c [1, 2]\n"
            "by_updates/fleet b [1, 2]\n"
            "by_updates/learner a [1, 2]\n");
}

}  // namespace
}  // namespace replicant::metrics
