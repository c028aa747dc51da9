#include "evaluation/evaluation_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/event_encoding.h"
#include "tests/support/message_of.h"

namespace replicant::evaluation {
namespace {

using std::chrono::seconds;
using testing::MessageOf;

class EvaluationLogTest : public ::testing::Test {
 protected:
  // A clock whose wall-clock time can be set, as by NTP.
  class JumpingClock : public FakeClock {
   public:
    int64_t UnixNanos() const override {
      return FakeClock::UnixNanos() + jump.count();
    }
    Clock::Duration jump{0};
  };

  // The steps of the events in a folder, without those that begin its files.
  static std::set<int64_t> EventSteps(const std::filesystem::path& folder) {
    std::set<int64_t> steps;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const std::string bytes = ReadFile(entry.path());
      size_t at = 0;
      while (const auto event =
                 metrics::ParseEventHead(std::string_view(bytes).substr(at))) {
        if (at > 0) steps.insert(event->step);
        at += static_cast<size_t>(event->record_bytes);
      }
    }
    return steps;
  }

  double BeganNow() const { return ToSeconds(clock_.Now().time_since_epoch()); }

  TemporaryFolder folder_;
  const std::filesystem::path run_ = folder_.path() / "run";
  JumpingClock clock_;
};

TEST_F(EvaluationLogTest, WhatIsWrittenIsRead) {
  EXPECT_TRUE(ReadEvaluations(run_).empty());
  {
    EvaluationLog log(run_, BeganNow(), &clock_);
    log.Write(MakeRecord(log.Now(), 5, 40,
                         {.returns = {1.0, 4.0, 7.0}, .lengths = {1, 2, 3}}));
    log.Write(
        MakeRecord(1.5, 6, std::nullopt, {.returns = {2.0}, .lengths = {9}}));
  }
  EXPECT_EQ(
      ReadFile(run_ / "evaluations.jsonl"),
      R"({"seconds":0.0,"step":5,"frames":40,"episodes":3,"return":4.0,)"
      R"("return_std":3.0,"return_min":1.0,"return_max":7.0,"length":2.0,)"
      R"("returns":[1.0,4.0,7.0]})"
      "\n"
      R"({"seconds":1.5,"step":6,"episodes":1,"return":2.0,)"
      R"("return_std":0.0,"return_min":2.0,"return_max":2.0,"length":9.0,)"
      R"("returns":[2.0]})"
      "\n");
  const auto records = ReadEvaluations(run_);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].step, 5);
  EXPECT_EQ(records[0].frames, 40);
  EXPECT_EQ(records[0].num_episodes, 3);
  EXPECT_EQ(records[0].mean, 4.0);
  EXPECT_EQ(records[0].standard_deviation, 3.0);
  EXPECT_EQ(records[0].min, 1.0);
  EXPECT_EQ(records[0].max, 7.0);
  EXPECT_EQ(records[0].mean_length, 2.0);
  EXPECT_EQ(records[0].returns, (std::vector<double>{1.0, 4.0, 7.0}));
  EXPECT_EQ(records[1].seconds, 1.5);
  EXPECT_EQ(records[1].frames, std::nullopt);
}

// By a learner that counts other frames once it has fallen back. A process
// finds what the one before it has written.
TEST_F(EvaluationLogTest, EvaluationsOfStepsThatAreLostAreRemoved) {
  const EvaluationResult result = {.returns = {1.0}, .lengths = {1}};
  {
    EvaluationLog log(run_, BeganNow(), &clock_);
    EXPECT_EQ(log.last_step(), std::nullopt);
    EXPECT_EQ(log.last_frames(), std::nullopt);
    for (const int64_t step : {10, 20}) {
      log.Write(MakeRecord(1.0, step, 8 * step, result));
    }
  }
  EvaluationLog log(run_, BeganNow(), &clock_);
  EXPECT_EQ(log.last_step(), 20);
  log.Write(MakeRecord(1.0, 30, 8 * 30, result));
  log.Rewind(14);
  EXPECT_EQ(log.last_step(), 10);
  EXPECT_EQ(log.last_frames(), 8 * 10);
  log.Write(MakeRecord(2.0, 15, 8 * 35, result));
  std::vector<int64_t> steps;
  for (const EvaluationRecord& record : ReadEvaluations(run_)) {
    steps.push_back(record.step);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{10, 15}));
  EXPECT_EQ(EventSteps(run_ / "by_updates" / "evaluator"),
            (std::set<int64_t>{10, 15}));
  EXPECT_EQ(EventSteps(run_ / "by_frames" / "evaluator"),
            (std::set<int64_t>{8 * 10, 8 * 35}));
}

// Would catch a long run with many episodes whose results cannot be read. The
// file has a hole, which takes no room on the disk: a line that a crash has
// torn.
TEST_F(EvaluationLogTest, AFileOfAnySizeIsRead) {
  EvaluationLog(run_, 0.0, &clock_)
      .Write(
          MakeRecord(1.0, 5, std::nullopt, {.returns = {1.0}, .lengths = {1}}));
  std::filesystem::resize_file(run_ / "evaluations.jsonl",
                               (uintmax_t{1} << 28) + 1);
  EXPECT_EQ(ReadEvaluations(run_).size(), 1U);
}

// Would catch an evaluator that a full disk ends, and with it the run's curve.
TEST_F(EvaluationLogTest, AFullDiskCostsRecordsAlone) {
  std::filesystem::create_directories(run_);
  std::filesystem::create_symlink("/dev/full", run_ / "evaluations.jsonl");
  EvaluationLog log(run_, BeganNow(), &clock_);
  log.Write(
      MakeRecord(1.5, 6, std::nullopt, {.returns = {2.0}, .lengths = {9}}));
  EXPECT_EQ(log.num_dropped(), 1);
}

// A night between a stop and a resume is no training.
TEST_F(EvaluationLogTest, TimeGoesOnWhereAResumedRunStopped) {
  const EvaluationResult result = {.returns = {1.0}, .lengths = {1}};
  clock_.Advance(seconds(1000));
  {
    EvaluationLog log(run_, FindBeginning(run_, 0.0, clock_), &clock_);
    EXPECT_EQ(log.Now(), 0.0);
    clock_.Advance(seconds(30));
    log.Write(MakeRecord(log.Now(), 1, std::nullopt, result));
  }
  clock_.Advance(seconds(36000));
  EvaluationLog log(run_, FindBeginning(run_, 0.0, clock_), &clock_);
  EXPECT_NEAR(log.Now(), 30.0, 1e-3);
  clock_.Advance(seconds(5));
  EXPECT_NEAR(log.Now(), 35.0, 1e-3);
  // the learner trained on after that evaluation, or did not
  const EvaluationLog later(run_, FindBeginning(run_, 42.0, clock_), &clock_);
  EXPECT_NEAR(later.Now(), 42.0, 1e-3);
  const EvaluationLog same(run_, FindBeginning(run_, 29.0, clock_), &clock_);
  EXPECT_NEAR(same.Now(), 30.0, 1e-3);
}

// The record of a diverged policy, and a line torn by a crash. Would catch a
// curve that bends where the time of the host is set.
TEST_F(EvaluationLogTest, TheTimeOfTheHostMovesNoEvaluation) {
  const EvaluationLog log(run_, FindBeginning(run_, 0.0, clock_), &clock_);
  clock_.Advance(seconds(5));
  clock_.jump = std::chrono::hours(-1);
  EXPECT_EQ(log.Now(), 5.0);
}

TEST_F(EvaluationLogTest, ReadsWhatAnyRunLeaves) {
  {
    EvaluationLog log(run_, 0.0, &clock_);
    log.Write(MakeRecord(1.0, 1, std::nullopt,
                         {.returns = {std::nan(""), 1.0}, .lengths = {1, 1}}));
  }
  const auto path = run_ / "evaluations.jsonl";
  AtomicWriteFile(path, ReadFile(path) + R"({"seconds":7,"st)");
  const auto records = ReadEvaluations(run_);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_TRUE(std::isnan(records[0].mean));
}

TEST_F(EvaluationLogTest, RefusesAnotherFile) {
  MakeFolders(run_);
  AtomicWriteFile(run_ / "evaluations.jsonl", "{\"step\": 1}\n");
  EXPECT_EQ(MessageOf<IoError>([&] { ReadEvaluations(run_); })
                .find((run_ / "evaluations.jsonl").string() +
                      ":1: not an evaluation record: "),
            0U);
}

// An evaluator must not end for want of a video.
TEST_F(EvaluationLogTest, WithoutATemporaryFolderThereIsNoVideo) {
  EvaluationLog log(run_, 0.0, &clock_);
  ::setenv("TMPDIR", "/no/such/folder", /*overwrite=*/1);
  EXPECT_NO_THROW(log.AddVideo(run_ / "video.mp4", 1));
  ::setenv("TMPDIR", folder_.path().parent_path().c_str(), /*overwrite=*/1);
}

}  // namespace
}  // namespace replicant::evaluation
