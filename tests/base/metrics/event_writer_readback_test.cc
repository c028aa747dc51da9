// TensorBoard's own reader finds what EventWriter writes: an independent check
// of every record checksum, field number and wire type.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fs.h"
#include "base/metrics/curves.h"
#include "base/metrics/event_writer.h"
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
      seconds(50));
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
    Curves curves({.folder = folder_.path()}, clock_);
    curves.AddScalar("a", 1, {.step = 10});
    curves.AddScalar("a", 2, {.step = 20, .frames = 400});
    const std::vector<float> values = {2, 2};
    curves.AddHistogram("b", values, {.step = 20, .frames = 400});
  }
  EXPECT_EQ(ReadByTensorBoard(folder_.path()),
            "scalar a 10 1.0 0.0\n"
            "scalar a 20 2.0 0.0\n"
            "histogram b 20 2.0 2.0 2.0 4.0 8.0 [2.0] [2.0]\n");
  EXPECT_EQ(ReadByTensorBoard(folder_.path() / "by_frames"),
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

}  // namespace
}  // namespace replicant::metrics
