#include "base/metrics/event_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/event_encoding.h"
#include "base/thread.h"
#include "tests/support/message_of.h"

namespace replicant::metrics {
namespace {

using std::chrono::seconds;
using testing::MessageOf;

class EventWriterTest : public ::testing::Test {
 protected:
  std::string Scalar(double wall_time_s, int64_t step, double value) {
    return FrameRecord(
        EncodeSummaryEvent(wall_time_s, step, EncodeScalar("a", value)));
  }

  TemporaryFolder folder_;
  FakeClock clock_;
};

// TensorBoard looks for "tfevents" in the name and sorts by it.
TEST_F(EventWriterTest, TheNameTellsTimeHostAndProcess) {
  clock_.Advance(seconds(1234));
  const EventWriter writer({folder_.path() / "new" / "run"}, clock_);
  EXPECT_EQ(writer.path().parent_path(), folder_.path() / "new" / "run");
  const std::string name = writer.path().filename();
  EXPECT_EQ(name.rfind("events.out.tfevents.1234.", 0), 0U) << name;
  EXPECT_NE(name.find("." + std::to_string(::getpid()) + "."),
            std::string::npos)
      << name;
}

TEST_F(EventWriterTest, TwoWritersOfOneFolderHaveTheirOwnFiles) {
  const EventWriter a({folder_.path()}, clock_);
  const EventWriter b({folder_.path()}, clock_);
  EXPECT_NE(a.path(), b.path());
}

TEST_F(EventWriterTest, EventsReachTheFileAfterTheInterval) {
  EventWriter writer({folder_.path(), seconds(10)}, clock_);
  std::string expected = FrameRecord(EncodeVersionEvent(0));
  EXPECT_EQ(ReadFile(writer.path()), expected) << "the version at once";

  clock_.Advance(seconds(9));
  writer.AddScalar("a", 0.5, 1);
  EXPECT_EQ(ReadFile(writer.path()), expected);
  clock_.Advance(seconds(1));
  writer.AddScalar("a", 0.25, 2);
  expected += Scalar(9, 1, 0.5) + Scalar(10, 2, 0.25);
  EXPECT_EQ(ReadFile(writer.path()), expected);

  writer.AddScalar("a", 0.125, 3);
  EXPECT_EQ(ReadFile(writer.path()), expected);
  writer.Flush();
  expected += Scalar(10, 3, 0.125);
  EXPECT_EQ(ReadFile(writer.path()), expected);
}

TEST_F(EventWriterTest, TheEndFlushes) {
  std::filesystem::path path;
  {
    EventWriter writer({folder_.path()}, clock_);
    path = writer.path();
    writer.AddScalar("a", 1.0, 1);
  }
  EXPECT_EQ(ReadFile(path),
            FrameRecord(EncodeVersionEvent(0)) + Scalar(0, 1, 1.0));
}

TEST_F(EventWriterTest, BadInputIsNamedAndNothingWritten) {
  EventWriter writer({folder_.path(), seconds(0)}, clock_);
  const auto size = std::filesystem::file_size(writer.path());
  EXPECT_EQ(MessageOf([&] { writer.AddScalar("", 1.0, 1); }),
            "EventWriter: a tag must have 1 to 1000 bytes, got 0 ('')");
  EXPECT_EQ(MessageOf([&] {
              writer.AddText("notes", std::string((1U << 24) + 1, 'x'), 1);
            }),
            "EventWriter: text 'notes' may have 16777216 bytes, got 16777217");
  EXPECT_EQ(std::filesystem::file_size(writer.path()), size);
}

TEST_F(EventWriterTest, BadOptionsAndPlacesAreNamed) {
  EXPECT_EQ(MessageOf([&] {
              EventWriter({folder_.path(), seconds(-1)}, clock_);
            }),
            "EventWriter: flush_interval must be >= 0, got -1000000000 ns");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));

  const auto file = folder_.path() / "file";
  AtomicWriteFile(file, "");
  EXPECT_EQ(MessageOf([&] { EventWriter({file / "run"}, clock_); }),
            "create folder: " + (file / "run").string() + ": Not a directory");
}

// Would catch records of two threads that mix (and, under tsan, a race).
TEST_F(EventWriterTest, ThreadsMayShareAWriter) {
  constexpr int kSteps = 200;
  EventWriter writer({folder_.path(), seconds(0)}, clock_);
  {
    std::vector<std::unique_ptr<Thread>> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) {
      threads.push_back(
          std::make_unique<Thread>("adder", [&](const Thread::StopToken&) {
            for (int i = 0; i < kSteps; ++i) writer.AddScalar("a", 1.0, 7);
          }));
    }
    for (const auto& thread : threads) thread->Join();
  }
  std::string expected = FrameRecord(EncodeVersionEvent(0));
  for (int i = 0; i < 4 * kSteps; ++i) expected += Scalar(0, 7, 1.0);
  EXPECT_EQ(ReadFile(writer.path()), expected);
}

}  // namespace
}  // namespace replicant::metrics
