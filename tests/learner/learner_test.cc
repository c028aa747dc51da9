#include "learner/learner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "engine/runtime/numeric_check.h"
#include "tests/support/graph_runner.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using ::testing::ElementsAre;
using testing::GraphRunner;
using ::testing::HasSubstr;
using ::testing::Pair;
using testing::ToDoubles;
using testing::Values;

// "Learns" by adding up random numbers, a second a step; its input fails now
// and then.
class SumWorkload : public Workload {
 public:
  explicit SumWorkload(FakeClock* clock) : clock_(*clock) {
    runner_.graph().AddVariable(
        {.name = "sum", .dtype = DType::kF64, .shape = Shape({1})});
    runner_.store().Declare(runner_.graph());
  }

  NextResult Step(Clock::TimePoint /*deadline*/) override {
    if (num_timeouts > 0) {
      --num_timeouts;
      clock_.Advance(std::chrono::milliseconds(100));
      wait_seconds_ += 0.1;
      return NextResult::kTimeout;
    }
    if (num_batches == 0) return NextResult::kEnd;
    if (num_batches == bad_batch) {
      throw runtime::NumericError("batch 7: input 'x': row 0 is nan");
    }
    --num_batches;
    clock_.Advance(std::chrono::seconds(1));
    const double sum = Sum() + random_.Uniform();
    variables().Set("sum", Values(DType::kF64, Shape({1}), {sum}).view());
    return NextResult::kOk;
  }
  std::string WaitReason() const override { return "the test"; }
  double WaitSeconds() const override { return wait_seconds_; }
  runtime::VariableStore& variables() override { return runner_.store(); }
  std::map<std::string, std::string> State() const override {
    return {{"random_position", std::to_string(random_.position())}};
  }
  void Restore(const std::map<std::string, std::string>& state) override {
    random_.set_position(std::stoull(state.at("random_position")));
  }
  std::vector<std::pair<std::string, double>> Scalars() const override {
    const auto position = static_cast<double>(random_.position());
    return {{"loss", 0.5}, {"evaluation_sum", position}, {"sum", position}};
  }
  std::vector<std::pair<std::string, std::span<const float>>> Histograms()
      const override {
    return {{"loss", losses_}};
  }
  std::optional<double> ReplayRatio(int64_t num_steps) const override {
    return 0.25 * static_cast<double>(num_steps);
  }
  int64_t NumFrames() const override {
    return 4 * static_cast<int64_t>(random_.position());
  }
  std::vector<Picture> TakePictures() override {
    const auto position = static_cast<int64_t>(random_.position());
    if (picture_steps == 0 || position % picture_steps != 0) return {};
    return {{.name = "pictures", .png = std::to_string(position)}};
  }

  std::optional<double> NumEpochs() const override {
    if (steps_per_epoch == 0.0) return std::nullopt;
    return static_cast<double>(random_.position()) / steps_per_epoch;
  }

  void Stop() override { ++num_stops; }
  void SetShouldStop(const std::function<bool()>& stop) override {
    should_stop = stop;
  }

  double Sum() { return ToDoubles(variables().Get("sum").view())[0]; }

  int num_timeouts = 0;
  int num_batches = 1000;
  int bad_batch = -1;
  double steps_per_epoch = 8.0;
  int64_t picture_steps = 0;  // a picture after so many steps; 0: none
  int num_stops = 0;
  std::function<bool()> should_stop;

 private:
  FakeClock& clock_;
  GraphRunner runner_;
  RandomStream random_{/*seed=*/3, "sum"};
  double wait_seconds_ = 0.0;
  std::vector<float> losses_ = {0.5F, 1.5F};
};

// Counts a step for each of the batches that one Step() takes. They are kept
// until all are there.
class RoundsWorkload : public SumWorkload, public CheckpointedInput {
 public:
  static constexpr int64_t kRound = 8;

  using SumWorkload::SumWorkload;

  NextResult Step(Clock::TimePoint deadline) override {
    const int64_t wanted = std::min(kRound - num_kept_, num_left_);
    num_kept_ += wanted;
    num_left_ -= wanted;
    if (num_kept_ < kRound) {
      ++num_waits;
      return NextResult::kTimeout;
    }
    num_kept_ = 0;
    return SumWorkload::Step(deadline);
  }
  int64_t NumNewSteps() const override { return kRound; }
  CheckpointedInput* input() override { return this; }
  void SetLimit(int64_t limit) override { num_left_ = limit; }
  void SetPaused(bool /*is_paused*/) override {}
  bool IsDrained() const override { return true; }

  int num_waits = 0;

 private:
  int64_t num_left_ = 0;
  int64_t num_kept_ = 0;
};

class LearnerTest : public ::testing::Test {
 protected:
  // A run with a test's own workload in the folder of the test.
  struct Run {
    EndReason reason;
    int64_t step;
    double sum;
  };
  Run RunUntil(const LimitsConfig& limits, const std::string& name = "run") {
    config_.limits = limits;
    FakeClock clock;
    SumWorkload workload(&clock);
    Learner learner(config_, folder_.path() / name, &workload, {}, &clock);
    const EndReason reason = learner.Run();
    return {reason, learner.step(), workload.Sum()};
  }

  std::vector<int64_t> CheckpointSteps() const {
    return CheckpointFolder(folder_.path() / "run" / "checkpoints", 1).Steps();
  }

  LearnerConfig config_ = {.parameter_bind = ""};
  TemporaryFolder folder_;
};

TEST_F(LearnerTest, EndsAtEachLimit) {
  EXPECT_EQ(RunUntil({.max_steps = 5}).step, 5);
  // the same run continues: 20 frames, 4 a step, were seen
  const Run frames = RunUntil({.max_frames = 32});
  EXPECT_EQ(frames.reason, EndReason::kFrameLimit);
  EXPECT_EQ(frames.step, 8);
  // a step takes a second; eight were before
  const Run seconds = RunUntil({.max_seconds = 10.5});
  EXPECT_EQ(seconds.reason, EndReason::kTimeLimit);
  EXPECT_EQ(seconds.step, 11);
  // eight steps an epoch
  const Run epochs = RunUntil({.max_epochs = 1.5});
  EXPECT_EQ(epochs.reason, EndReason::kEpochLimit);
  EXPECT_EQ(epochs.step, 12);
}

// Would catch a run that waits for ever for the last batches of a step.
TEST_F(LearnerTest, AStepOfSeveralBatchesEndsBehindTheLimit) {
  for (const auto& [limit, end] : {std::pair(100, 104), {96, 96}, {3, 8}}) {
    config_.limits = {.max_steps = limit};
    FakeClock clock;
    RoundsWorkload workload(&clock);
    Learner learner(
        config_, folder_.path() / std::to_string(limit), &workload,
        {.should_stop = [&workload] { return workload.num_waits > 10; }},
        &clock);
    EXPECT_EQ(learner.Run(), EndReason::kStepLimit) << limit;
    EXPECT_EQ(learner.step(), end);
  }
}

TEST_F(LearnerTest, DataWithoutEpochsHasNoEpochLimit) {
  config_.limits = {.max_epochs = 1.0};
  FakeClock clock;
  SumWorkload workload(&clock);
  workload.steps_per_epoch = 0.0;
  EXPECT_EQ(testing::MessageOf<ConfigError>([&] {
              Learner(config_, folder_.path() / "run", &workload, {}, &clock);
            }),
            "learner.limits.max_epochs: the data of this workload has no "
            "epochs; allowed here: 0");
}

TEST_F(LearnerTest, NamesTheStepOfABadBatch) {
  FakeClock clock;
  SumWorkload workload(&clock);
  workload.bad_batch = 998;
  Learner learner(config_, folder_.path() / "run", &workload, {}, &clock);
  EXPECT_EQ(testing::MessageOf<runtime::NumericError>([&] { learner.Run(); }),
            "step 2: batch 7: input 'x': row 0 is nan");
}

TEST_F(LearnerTest, StopsTheOtherProcessesWhenItHasSaved) {
  FakeClock clock;
  SumWorkload workload(&clock);
  config_.limits = {.max_steps = 3};
  Learner(config_, folder_.path() / "run", &workload, {}, &clock).Run();
  EXPECT_EQ(workload.num_stops, 1);
}

TEST_F(LearnerTest, AFollowerStepsUntilTheEnd) {
  FakeClock clock;
  SumWorkload workload(&clock);
  workload.num_batches = 4;
  workload.num_timeouts = 3;
  Follow(
      workload, [] { return false; }, clock);
  EXPECT_EQ(workload.num_batches, 0);
  EXPECT_EQ(workload.num_stops, 0);
}

// Would catch a training that a full disk ends.
TEST_F(LearnerTest, AFullDiskCostsPointsOfTheCurveAlone) {
  std::filesystem::create_directories(folder_.path() / "run");
  std::filesystem::create_symlink("/dev/full",
                                  folder_.path() / "run" / "learner.jsonl");
  const Run run = RunUntil({.max_steps = 50});
  EXPECT_EQ(run.step, 50);
  EXPECT_THAT(CheckpointSteps(), ElementsAre(50));
}

// Publishes its variable.
class PublishingWorkload : public SumWorkload {
 public:
  using SumWorkload::SumWorkload;

  std::vector<std::string> PublishedVariables() const override {
    return {"sum"};
  }
  std::string PublishedTopic() const override {
    ++num_published;
    return "policy";
  }

  mutable int num_published = 0;
};

// Would catch a fleet that starts a learner again and again whose policy is too
// large: one that has run may have failed by chance.
TEST_F(LearnerTest, PublishesBeforeItRuns) {
  config_.parameter_bind = "tcp://127.0.0.1:*";
  config_.limits.max_steps = 3;
  config_.publish_interval_s = 10.0;
  FakeClock clock;
  PublishingWorkload workload(&clock);
  Learner learner(config_, folder_.path() / "run", &workload, {}, &clock);
  EXPECT_EQ(workload.num_published, 1);
  learner.Run();
  // and at the end
  EXPECT_EQ(workload.num_published, 2);
}

// The limit ends the run; another attempt would only repeat the training.
TEST_F(LearnerTest, ALastCheckpointThatFailsEndsTheRunAllTheSame) {
  FakeClock clock;
  SumWorkload workload(&clock);
  config_.limits = {.max_steps = 5};
  const auto run = folder_.path() / "run";
  Learner learner(config_, run, &workload, {}, &clock);
  std::filesystem::remove_all(run / "checkpoints");
  AtomicWriteFile(run / "checkpoints", "");
  EXPECT_EQ(learner.Run(), EndReason::kStepLimit);
  EXPECT_EQ(workload.num_stops, 1);
  EXPECT_THAT(learner.unsaved(),
              ::testing::StartsWith("no checkpoint of step 5: "));
}

// A process that was killed has written points of steps that the next one
// makes again from the checkpoint before.
TEST_F(LearnerTest, CurvesOfStepsThatAreLostAreRemoved) {
  config_.log_interval_s = 1.0;
  const auto run = folder_.path() / "run";
  const auto steps = [&] {
    std::vector<int64_t> found;
    std::istringstream lines(ReadFile(run / "learner.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      found.push_back(std::stoll(line.substr(line.find(':') + 1)));
    }
    return found;
  };
  RunUntil({.max_steps = 4}, "run");
  RunUntil({.max_steps = 9}, "run");
  EXPECT_GE(steps().back(), 9);
  std::filesystem::remove_all(run / "checkpoints" / "step-000000000009");
  RunUntil({.max_steps = 6}, "run");
  EXPECT_TRUE(std::ranges::is_sorted(steps()));
  EXPECT_EQ(steps().back(), 6);
  EXPECT_TRUE(std::filesystem::exists(run / "by_updates" / "learner"));
}

TEST_F(LearnerTest, ARunThatIsResumedEqualsOneThatWasNot) {
  const Run whole = RunUntil({.max_steps = 20}, "whole");
  EXPECT_EQ(whole.reason, EndReason::kStepLimit);
  RunUntil({.max_steps = 7}, "parts");
  const Run parts = RunUntil({.max_steps = 20}, "parts");
  EXPECT_EQ(parts.step, 20);
  EXPECT_EQ(parts.sum, whole.sum);
}

TEST_F(LearnerTest, EndsWithItsInputAndWhenAsked) {
  FakeClock clock;
  SumWorkload workload(&clock);
  workload.num_batches = 3;
  Learner learner(config_, folder_.path() / "run", &workload, {}, &clock);
  EXPECT_EQ(learner.Run(), EndReason::kEndOfInput);
  EXPECT_THAT(CheckpointSteps(), ElementsAre(3));

  SumWorkload again(&clock);
  Learner stopped(config_, folder_.path() / "run", &again,
                  {.should_stop = [&] { return again.NumFrames() >= 24; }},
                  &clock);
  EXPECT_EQ(stopped.Run(), EndReason::kStopped);
  EXPECT_EQ(stopped.step(), 6);
  EXPECT_TRUE(again.should_stop());
}

TEST_F(LearnerTest, ReportsRatesAndWhatItWaitsFor) {
  config_.limits.max_steps = 12;
  config_.log_interval_s = 5.0;
  FakeClock clock;
  SumWorkload workload(&clock);
  workload.num_timeouts = 60;
  std::vector<Progress> reports;
  Learner learner(
      config_, folder_.path(), &workload,
      {.on_progress = [&](const Progress& p) { reports.push_back(p); }},
      &clock);
  EXPECT_EQ(learner.Run(), EndReason::kStepLimit);
  ASSERT_EQ(reports.size(), 4U);
  EXPECT_EQ(reports[0].step, 0);
  EXPECT_DOUBLE_EQ(reports[0].seconds, 5.0);
  EXPECT_EQ(reports[0].wait_reason, "the test");
  EXPECT_NEAR(reports[0].wait_share, 1.0, 1e-9);
  // a second of waiting, then four steps
  EXPECT_EQ(reports[1].step, 4);
  EXPECT_NEAR(reports[1].wait_share, 0.2, 1e-9);
  EXPECT_NEAR(reports[1].steps_per_s, 0.8, 1e-9);
  EXPECT_EQ(reports[1].wait_reason, "");
  EXPECT_EQ(reports[3].step, 12);

  const std::string lines = ReadFile(folder_.path() / "learner.jsonl");
  EXPECT_THAT(lines, HasSubstr("\"loss\":0.5"));
  EXPECT_THAT(lines, HasSubstr("\"frames\":48"));
  EXPECT_THAT(lines, HasSubstr("\"replay_ratio\":3"));
  // the mean of the steps since the line before: 1 to 4, then 5 to 9
  EXPECT_THAT(lines, HasSubstr("\"sum\":2.5"));
  EXPECT_THAT(lines, HasSubstr("\"sum\":7.0}"));
  // scores are no means, which would mix evaluations
  EXPECT_THAT(lines, HasSubstr("\"evaluation_sum\":4.0"));
  EXPECT_THAT(lines, HasSubstr("\"evaluation_sum\":9.0"));
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 4);
}

// catches pictures that have the step of a report, or are lost between two
TEST_F(LearnerTest, EachPictureHasItsStep) {
  config_.limits.max_steps = 10;
  FakeClock clock;
  SumWorkload workload(&clock);
  workload.picture_steps = 3;
  Learner(config_, folder_.path(), &workload, {}, &clock).Run();
  std::map<std::string, std::string> pictures;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_.path() / "pictures")) {
    pictures[entry.path().filename()] = ReadFile(entry.path());
  }
  EXPECT_THAT(pictures, ElementsAre(Pair("step-000000000003.png", "3"),
                                    Pair("step-000000000006.png", "6"),
                                    Pair("step-000000000009.png", "9")));
}

// What TensorBoard's reader makes of them is in event_writer_readback_test.
TEST_F(LearnerTest, EventFilesHoldTheConfigurationAndAreOverFramesToo) {
  config_.limits.max_steps = 2;
  FakeClock clock;
  SumWorkload workload(&clock);
  {
    Learner learner(config_, folder_.path(), &workload,
                    {.config_yaml = "run: {name: mine}"}, &clock);
    learner.Run();
  }
  const auto events_in = [](const std::filesystem::path& folder) {
    std::string bytes;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with("events.")) {
        bytes += ReadFile(entry.path());
      }
    }
    return bytes;
  };
  const std::string events =
      events_in(folder_.path() / "by_updates" / "learner");
  EXPECT_THAT(events, HasSubstr("run: {name: mine}"));
  EXPECT_THAT(events, HasSubstr("learner/loss_distribution"));
  EXPECT_THAT(events_in(folder_.path() / "by_frames" / "learner"),
              HasSubstr("learner/loss"));
}

TEST_F(LearnerTest, WritesCheckpointsWhileItRuns) {
  config_.checkpoint_interval_s = 4.0;
  config_.num_kept_checkpoints = 3;
  RunUntil({.max_steps = 10});
  EXPECT_THAT(CheckpointSteps(), ElementsAre(4, 8, 10));
}

// Would catch a damaged checkpoint that stays the newest and for which good
// ones are removed.
TEST_F(LearnerTest, ARunContinuesBehindADamagedCheckpoint) {
  config_.num_kept_checkpoints = 2;
  RunUntil({.max_steps = 4});
  RunUntil({.max_steps = 8});
  std::filesystem::resize_file(folder_.path() / "run" / "checkpoints" /
                                   "step-000000000008" /
                                   "variables.safetensors",
                               10);
  EXPECT_EQ(RunUntil({.max_steps = 6}).step, 6);
  EXPECT_THAT(CheckpointSteps(), ElementsAre(4, 6));
}

TEST_F(LearnerTest, NothingIsSavedOfARunThatHasNotLearned) {
  FakeClock clock;
  SumWorkload workload(&clock);
  workload.num_batches = 0;
  config_.checkpoint_interval_s = 1.0;
  Learner learner(config_, folder_.path() / "run", &workload, {}, &clock);
  EXPECT_EQ(learner.Run(), EndReason::kEndOfInput);
  EXPECT_TRUE(CheckpointSteps().empty());
}

TEST_F(LearnerTest, RefusesAFolderThatCannotBeWritten) {
  std::ofstream(folder_.path() / "file") << "x";
  FakeClock clock;
  SumWorkload workload(&clock);
  EXPECT_THROW(Learner(config_, folder_.path() / "file", &workload, {}, &clock),
               IoError);
}

}  // namespace
}  // namespace replicant::learner
