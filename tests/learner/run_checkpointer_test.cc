#include "learner/run_checkpointer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/fs.h"
#include "base/thread.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"
#include "tests/support/stalled_disk.h"

namespace replicant::learner {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Input of which two batches are under way, and that saves itself when it is
// told to.
class FakeWorkload : public Workload, public CheckpointedInput {
 public:
  FakeWorkload() {
    runner_.graph().AddVariable({.name = "v", .shape = Shape({1})});
    runner_.store().Declare(runner_.graph());
  }

  NextResult Step(Clock::TimePoint /*deadline*/) override {
    if (is_paused && num_under_way == 0) {
      is_drained_ = true;
      return NextResult::kTimeout;
    }
    if (!is_coming) return NextResult::kTimeout;
    if (is_paused) --num_under_way;
    ++step;
    return NextResult::kOk;
  }
  std::string WaitReason() const override { return ""; }
  double WaitSeconds() const override { return 0.0; }
  std::optional<double> NumEpochs() const override {
    return 0.25 * static_cast<double>(step);
  }
  runtime::VariableStore& variables() override { return runner_.store(); }
  std::vector<std::pair<std::string, double>> Scalars() const override {
    return {};
  }
  CheckpointedInput* input() override { return this; }
  void SetPaused(bool paused) override {
    is_paused = paused;
    is_drained_ = false;
    if (!paused) num_under_way = 2;
  }
  bool IsDrained() const override { return is_drained_; }
  void StartSaving(uint64_t id,
                   const std::filesystem::path& /*folder*/) override {
    EXPECT_TRUE(is_paused);
    if (!start_problem.empty()) throw IoError(start_problem);
    saved_ids.push_back(id);
  }
  replay::CheckpointState PollSaved() override {
    if (on_poll) on_poll();
    if (!problem.empty()) throw CommError(problem);
    return part;
  }

  int64_t step = 0;
  bool is_coming = true;
  bool is_paused = false;
  int num_under_way = 2;
  std::vector<uint64_t> saved_ids;
  replay::CheckpointState part = replay::CheckpointState::kSaved;
  std::string problem;
  std::string start_problem;
  std::function<void()> on_poll;

 private:
  testing::GraphRunner runner_;
  bool is_drained_ = false;
};

class RunCheckpointerTest : public ::testing::Test {
 protected:
  void Step(int count = 1) {
    for (int i = 0; i < count; ++i) {
      static_cast<void>(workload_.Step({}));
      checkpointer_.Advance(workload_.step);
    }
  }
  std::string SaveLast() {
    return checkpointer_.SaveLast(workload_.step,
                                  [this]() -> std::optional<int64_t> {
                                    if (workload_.step >= max_steps_)
                                      return std::nullopt;
                                    clock_.Advance(seconds(1));
                                    static_cast<void>(workload_.Step({}));
                                    return workload_.step;
                                  });
  }

  int64_t max_steps_ = 1000;
  TemporaryFolder temporary_;
  CheckpointFolder folder_{temporary_.path() / "checkpoints", 2};
  FakeWorkload workload_;
  FakeClock clock_;
  RunCheckpointer checkpointer_{&folder_, &workload_, [] { return 7.5; },
                                &clock_};
};

TEST_F(RunCheckpointerTest, CutsTheRunOnceNothingIsUnderWay) {
  Step(3);
  checkpointer_.Start(workload_.step);
  EXPECT_TRUE(workload_.is_paused);
  Step(2);
  EXPECT_THAT(workload_.saved_ids, IsEmpty());
  // finds that nothing is left, and continues
  Step();
  EXPECT_THAT(workload_.saved_ids, ElementsAre(1));
  EXPECT_FALSE(workload_.is_paused);
  EXPECT_THAT(folder_.Steps(), ElementsAre(5));
  EXPECT_TRUE(folder_.NewestManifest()->has_input);
  EXPECT_EQ(folder_.NewestManifest()->seconds, 7.5);
  EXPECT_EQ(folder_.NewestManifest()->epochs, 1.25);
  // nothing new: none
  checkpointer_.Start(5);
  EXPECT_FALSE(workload_.is_paused);
}

// Would catch a damaged checkpoint that stays the newest, and a run that comes
// to its step and ends without one.
TEST_F(RunCheckpointerTest, AnEarlierProcesssOfALaterStepIsReplaced) {
  Step(3);
  checkpointer_.Start(workload_.step);
  Step(3);
  ASSERT_EQ(folder_.NewestManifest()->step, 5);
  FakeWorkload workload;
  workload.step = 2;
  RunCheckpointer later(
      &folder_, &workload, [] { return 9.5; }, &clock_);
  later.ContinueFrom(2);
  EXPECT_THAT(folder_.Steps(), IsEmpty());
  static_cast<void>(workload.Step({}));
  later.Start(workload.step);
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(workload.Step({}));
    later.Advance(workload.step);
  }
  EXPECT_THAT(folder_.Steps(), ElementsAre(5));
  EXPECT_EQ(folder_.NewestManifest()->seconds, 9.5);
}

TEST_F(RunCheckpointerTest, IsCompleteOnlyWithTheInputsPart) {
  workload_.part = replay::CheckpointState::kPending;
  Step();
  checkpointer_.Start(workload_.step);
  Step(10);
  EXPECT_GT(workload_.step, 6);  // it trains meanwhile
  EXPECT_THAT(folder_.Steps(), IsEmpty());
  EXPECT_TRUE(std::filesystem::exists(folder_.PathOf(3)));
  checkpointer_.Start(workload_.step);  // one at a time
  EXPECT_FALSE(workload_.is_paused);
  workload_.part = replay::CheckpointState::kSaved;
  Step();
  EXPECT_THAT(folder_.Steps(), ElementsAre(3));
}

TEST_F(RunCheckpointerTest, OneThatFailsLeavesTheOneBeforeAndItsId) {
  Step();
  checkpointer_.Start(workload_.step);
  Step(3);
  EXPECT_THAT(folder_.Steps(), ElementsAre(3));
  Step();
  workload_.problem = "No space left on device";
  checkpointer_.Start(workload_.step);
  Step(5);
  EXPECT_THAT(folder_.Steps(), ElementsAre(3));
  // of the one that failed nothing is left
  int num_folders = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(temporary_.path() / "checkpoints")) {
    num_folders += entry.is_directory() ? 1 : 0;
  }
  EXPECT_EQ(num_folders, 1);
  workload_.problem.clear();
  workload_.start_problem = "Read-only file system";
  checkpointer_.Start(workload_.step);
  Step(3);
  EXPECT_THAT(folder_.Steps(), ElementsAre(3));
  EXPECT_FALSE(workload_.is_paused);
  workload_.start_problem.clear();
  checkpointer_.Start(workload_.step);
  Step(3);
  EXPECT_EQ(folder_.Steps().size(), 2U);
  EXPECT_THAT(workload_.saved_ids, ElementsAre(1, 2, 2));
}

TEST_F(RunCheckpointerTest, DoesNotWaitForInputThatDoesNotCome) {
  Step();
  workload_.is_coming = false;
  checkpointer_.Start(workload_.step);
  Step();
  EXPECT_THAT(workload_.saved_ids, IsEmpty());
  clock_.Advance(seconds(11));
  Step();
  EXPECT_THAT(folder_.Steps(), ElementsAre(1));
  EXPECT_FALSE(workload_.is_paused);
}

TEST_F(RunCheckpointerTest, InputWithoutCheckpointsHasNoPart) {
  workload_.part = replay::CheckpointState::kNotKept;
  Step();
  EXPECT_EQ(SaveLast(), "");
  EXPECT_FALSE(folder_.NewestManifest()->has_input);
}

TEST_F(RunCheckpointerTest, TheLastOneLearnsFromWhatIsUnderWay) {
  Step(4);
  EXPECT_EQ(SaveLast(), "");
  EXPECT_EQ(workload_.step, 6);
  EXPECT_THAT(folder_.Steps(), ElementsAre(6));
  // the limit of the run holds
  max_steps_ = 7;
  workload_.SetPaused(false);
  Step();
  EXPECT_EQ(SaveLast(), "");
  EXPECT_EQ(workload_.step, 7);
  EXPECT_THAT(folder_.Steps(), ElementsAre(6, 7));
}

TEST_F(RunCheckpointerTest, WithoutTheInputsPartTheLastOneIsKeptIncomplete) {
  for (std::string* problem : {&workload_.problem, &workload_.start_problem}) {
    *problem = "the replay is gone";
    Step(4);
    const std::string unsaved = SaveLast();
    EXPECT_EQ(unsaved,
              fmt::format("no checkpoint of step {}: the replay is gone",
                          workload_.step));
    EXPECT_THAT(folder_.Steps(), IsEmpty());
    EXPECT_TRUE(std::filesystem::exists(folder_.PathOf(workload_.step)));
    problem->clear();
  }
}

// Would catch a run that a full disk lets end, but not be over.
TEST_F(RunCheckpointerTest, TheLastOneThatCannotBeWrittenIsNoException) {
  Step(4);
  std::filesystem::remove_all(temporary_.path() / "checkpoints");
  AtomicWriteFile(temporary_.path() / "checkpoints", "");
  EXPECT_THAT(SaveLast(),
              ::testing::MatchesRegex("no checkpoint of step 6: .*checkpoints.*"
                                      "Not a directory.*"));
}

// The fleet kills a learner that takes longer than a minute to end.
TEST_F(RunCheckpointerTest, OneDeadlineHoldsForAllOfTheEnd) {
  workload_.part = replay::CheckpointState::kPending;
  workload_.on_poll = [this] { clock_.Advance(seconds(1)); };
  Step();
  checkpointer_.Start(workload_.step);
  Step(3);
  const Clock::TimePoint begin = clock_.Now();
  Step();
  // the one under way, and then the last one
  EXPECT_THAT(SaveLast(), ::testing::EndsWith("is not saved after 45 s"));
  EXPECT_LE(clock_.Now() - begin, seconds(50));
  EXPECT_THAT(folder_.Steps(), IsEmpty());
}

class StalledRunCheckpointerTest : public RunCheckpointerTest {
 protected:
  testing::StalledDisk disk_{temporary_.path() / "stalled"};
  DiskQueue queue_;
  RunCheckpointer beside_{&folder_, &workload_, [] { return 7.5; }, &clock_,
                          &queue_};
};

// Would catch a training that stands while an fsync does.
TEST_F(StalledRunCheckpointerTest, TheTrainingGoesOn) {
  disk_.Stall();
  Step();
  beside_.Start(workload_.step);
  for (int i = 0; i < 20; ++i) {
    static_cast<void>(workload_.Step({}));
    beside_.Advance(workload_.step);
  }
  EXPECT_GT(workload_.step, 15);
  EXPECT_THAT(workload_.saved_ids, ElementsAre(1));
  EXPECT_THAT(folder_.Steps(), IsEmpty());
  EXPECT_FALSE(beside_.completed_at());
  disk_.Resume();
  // the learner's part, then the manifest
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(queue_.Await(std::chrono::minutes(1)));
    beside_.Advance(workload_.step);
  }
  EXPECT_TRUE(queue_.Await(std::chrono::minutes(1)));
  beside_.Advance(workload_.step);
  EXPECT_THAT(folder_.Steps(), ElementsAre(3));
  EXPECT_TRUE(beside_.completed_at());
}

TEST_F(StalledRunCheckpointerTest, TheEndWaitsForTheDiskUpToItsDeadline) {
  disk_.Stall();
  Step(4);
  const Thread time("time", [&](const Thread::StopToken& token) {
    while (!token.IsStopRequested()) {
      clock_.Advance(seconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_THAT(
      beside_.SaveLast(workload_.step,
                       []() -> std::optional<int64_t> { return {}; }),
      ::testing::StartsWith("no checkpoint of step 4: the disk has stalled; "));
  disk_.Resume();
}

// The saved variables have their values at the cut, whatever is learned while
// they are written.
TEST_F(StalledRunCheckpointerTest, WhatIsWrittenIsAsItWasAtTheCut) {
  const auto value = [](double v) {
    return testing::Values(DType::kF32, Shape({1}), {v});
  };
  workload_.variables().Set("v", value(3.0).view());
  disk_.Stall();
  Step();
  beside_.Start(workload_.step);
  for (int i = 0; i < 4; ++i) {
    static_cast<void>(workload_.Step({}));
    beside_.Advance(workload_.step);
  }
  workload_.variables().Set("v", value(4.0).view());
  disk_.Resume();
  EXPECT_EQ(beside_.SaveLast(3, []() -> std::optional<int64_t> { return {}; }),
            "");
  runtime::LoadCheckpoint(folder_.PathOf(3), workload_.variables());
  EXPECT_EQ(testing::ToDoubles(workload_.variables().Get("v").view())[0], 3.0);
}

}  // namespace
}  // namespace replicant::learner
