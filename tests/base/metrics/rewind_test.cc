#include "base/metrics/rewind.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/clock.h"
#include "base/disk_queue.h"
#include "base/fs.h"
#include "base/metrics/curves.h"
#include "base/metrics/event_encoding.h"
#include "base/metrics/event_writer.h"
#include "base/metrics/json_lines.h"

namespace replicant::metrics {
namespace {

class RewindTest : public ::testing::Test {
 protected:
  std::filesystem::path Write(const std::string& name,
                              const std::string& text) const {
    const auto file = folder_.path() / name;
    MakeFolders(file.parent_path());
    AtomicWriteFile(file, text);
    return file;
  }
  static std::string Event(int64_t step) {
    return FrameRecord(EncodeSummaryEvent(1.0, step, EncodeScalar("a", 2.0)));
  }

  const std::string header_ = FrameRecord(EncodeVersionEvent(1.0));
  TemporaryFolder folder_;
};

TEST_F(RewindTest, CutsEventsBeforeTheFirstLaterOne) {
  const int64_t large = int64_t{1} << 40;
  const std::string earlier = header_ + Event(0) + Event(3) + Event(large);
  const auto file =
      Write("events.out.tfevents.1.a", earlier + Event(large + 1) + Event(1));
  const auto all_later =
      Write("events.out.tfevents.2.a", header_ + Event(large + 2));
  const auto torn = Write("events.out.tfevents.3.a",
                          header_ + Event(3) + Event(4).substr(0, 9));
  const auto other = Write("notes.txt", Event(large + 1));
  CutEvents(folder_.path(), large);
  EXPECT_EQ(ReadFile(file), earlier);
  EXPECT_EQ(ReadFile(all_later), header_);
  EXPECT_EQ(ReadFile(torn), header_ + Event(3) + Event(4).substr(0, 9));
  EXPECT_EQ(ReadFile(other), Event(large + 1));
  CutEvents(folder_.path() / "missing", 0);
}

TEST_F(RewindTest, CutsLinesBeforeTheFirstLaterOne) {
  const auto file = Write("a.jsonl",
                          "{\"seconds\":1.5,\"step\":3}\n{\"x\":9}\n"
                          "{\"step\":12,\"last_step\":1}\n{\"step\":4}\n");
  CutJsonLines(file, 12);
  EXPECT_EQ(ReadFile(file).size(), 70U);
  CutJsonLines(file, 11);
  EXPECT_EQ(ReadFile(file), "{\"seconds\":1.5,\"step\":3}\n{\"x\":9}\n");
  CutJsonLines(file, 2);
  EXPECT_EQ(ReadFile(file), "");
  CutJsonLines(folder_.path() / "missing.jsonl", 2);
  // reading it would never end
  CutJsonLines("/dev/zero", 2);
}

TEST_F(RewindTest, RewindsAllWritersOfARun) {
  const std::string events = header_ + Event(10);
  for (const char* name :
       {"by_updates/learner", "by_updates/fleet", "by_updates/evaluator",
        "by_frames/fleet", ".", "by_frames"}) {
    Write(std::string(name) + "/events.out.tfevents.1.a", events + Event(11));
  }
  Write("fleet.jsonl", "{\"step\":10}\n{\"step\":11}\n");
  RewindRun(folder_.path(), 10, 11);
  const auto read = [&](const std::string& name) {
    return ReadFile(folder_.path() / name);
  };
  EXPECT_EQ(read("by_updates/learner/events.out.tfevents.1.a"), events);
  EXPECT_EQ(read("by_updates/fleet/events.out.tfevents.1.a"), events);
  EXPECT_EQ(read("by_updates/evaluator/events.out.tfevents.1.a"), events);
  EXPECT_EQ(read("events.out.tfevents.1.a"), events);
  EXPECT_EQ(read("by_frames/fleet/events.out.tfevents.1.a"),
            events + Event(11));
  EXPECT_EQ(read("by_frames/events.out.tfevents.1.a"), events + Event(11));
  EXPECT_EQ(read("fleet.jsonl"), "{\"step\":10}\n");
}

// What has been gathered before the rewind, too, and nothing after it.
TEST_F(RewindTest, WritersRewindWhatTheyHaveGathered) {
  FakeClock clock;
  DiskQueue disk;
  {
    JsonLinesWriter lines({.path = folder_.path() / "a.jsonl", .disk = &disk},
                          clock);
    Curves curves("learner", {.folder = folder_.path(), .disk = &disk}, clock);
    for (const int64_t step : {1, 2, 3, 4}) {
      lines.Write(JsonObject().Add("step", step));
      curves.AddScalar("a", 2.0, {.step = step, .frames = step});
    }
    lines.Rewind(2);
    curves.Rewind(2, std::nullopt);
    lines.Write(JsonObject().Add("step", 3));
    curves.AddScalar("a", 2.0, {.step = 3, .frames = 5});
  }
  ASSERT_TRUE(disk.Await(std::chrono::seconds(60)));
  EXPECT_EQ(ReadFile(folder_.path() / "a.jsonl"),
            "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n");
  std::string bytes;
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(
           folder_.path() / "by_updates" / "learner")) {
    bytes += ReadFile(entry.path());
    ++num_files;
  }
  EXPECT_EQ(num_files, 2);
  EXPECT_EQ(bytes.size(), 2 * header_.size() + 3 * Event(1).size());
}

}  // namespace
}  // namespace replicant::metrics
