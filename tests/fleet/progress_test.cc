#include "fleet/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/fs.h"
#include "base/metrics/registry.h"
#include "tests/fleet/fake_terminal.h"

namespace replicant::fleet {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

class ProgressLineTest : public ::testing::Test {
 protected:
  ~ProgressLineTest() override { ::close(options_.fd); }

  // The text printed since the last call.
  std::string Printed() {
    const std::string all = ReadFile(path_);
    std::string text = all.substr(num_seen_);
    num_seen_ = all.size();
    return text;
  }

  const TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_.path() / "output";
  const ProgressOptions options_{
      .fd = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666)};
  FakeClock clock_;
  metrics::Counter steps_;
  metrics::Gauge episode_return_;

 private:
  size_t num_seen_ = 0;
};

TEST_F(ProgressLineTest, ShowsCountsRatesAndValues) {
  ProgressLine progress(options_, clock_);
  progress.AddCount(
      "step", [&] { return steps_.value(); }, 100'000);
  progress.AddRate("steps/s", [&] { return steps_.value(); });
  progress.AddCount("env-steps", [&] { return 4 * steps_.value(); });
  progress.AddValue("return", [&] { return episode_return_.value(); });

  // nothing is known of the rate yet
  progress.Update();
  EXPECT_EQ(Printed(), "step 0/100k  steps/s -  env-steps 0  return 0\n");

  clock_.Advance(seconds(30));
  steps_.Increment(12'600);
  episode_return_.Set(123.4);
  progress.Update();
  EXPECT_EQ(Printed(),
            "step 12.6k/100k  steps/s 420  env-steps 50.4k  return 123.4\n");
}

// The first limit of a run to be reached ends it.
TEST_F(ProgressLineTest, ShowsTheTimePassedAndLeft) {
  ProgressLine progress(options_, clock_);
  double time = 0.0;
  progress.AddTime({{.value = [&] { return steps_.value(); }, .goal = 100'000},
                    {.value = [&] { return time; }, .goal = 3600.0}});
  progress.Update();
  EXPECT_EQ(Printed(), "0s, ? left\n");
  clock_.Advance(seconds(30));
  // 420 a second: 87400 more take 208 s
  steps_.Increment(12'600);
  time = 30.0;
  progress.Update();
  EXPECT_EQ(Printed(), "30s, 3m28s left\n");
  clock_.Advance(seconds(60));
  time = 90.0;
  progress.Update();
  EXPECT_EQ(Printed(), "1m30s, 58m30s left\n");
}

TEST_F(ProgressLineTest, WithoutALimitOnlyThePassedTimeIsShown) {
  ProgressLine progress(options_, clock_);
  progress.AddTime({});
  clock_.Advance(seconds(75));
  progress.Update();
  EXPECT_EQ(Printed(), "1m15s\n");
}

// Would catch a line that ends in "samples/inse...".
TEST_F(ProgressLineTest, WhatDoesNotFitIsLeftOut) {
  FakeTerminal terminal(40);
  ProgressLine progress({.fd = terminal.fd()}, clock_);
  std::string problem;
  progress.AddText("problem:", [&] { return problem; });
  progress.AddValue("return", [] { return 123.4; });
  progress.AddForms("limit", [] {
    return std::vector<std::string>{"actors: learner waits 60% (no batch)",
                                    "actors: learner waits", "a"};
  });
  progress.AddText("samples/insert", [] { return "32"; });
  progress.AddText("x", [] { return "1"; });
  progress.Update();
  EXPECT_THAT(terminal.Screen(),
              ElementsAre("return 123.4  limit a  x 1", "0"));
  problem = "learner-0 waits";
  clock_.Advance(seconds(1));
  progress.Update();
  EXPECT_THAT(terminal.Screen(),
              ElementsAre("problem: learner-0 waits  return 123.4", "0"));
}

TEST_F(ProgressLineTest, ShowsText) {
  ProgressLine progress(options_, clock_);
  progress.AddCount("step", [&] { return steps_.value(); });
  progress.AddText("limit", [] { return std::string("actors"); });
  progress.Update();
  EXPECT_EQ(Printed(), "step 0  limit actors\n");
}

// Would catch a log file that is filled by a line for every step.
TEST_F(ProgressLineTest, PlainLinesKeepTheirInterval) {
  ProgressLine progress(options_, clock_);
  progress.AddCount("step", [&] { return steps_.value(); });
  progress.Update();
  EXPECT_EQ(Printed(), "step 0\n");
  for (int s = 1; s < 30; ++s) {
    clock_.Advance(seconds(1));
    steps_.Increment();
    progress.Update();
  }
  EXPECT_EQ(Printed(), "");
  clock_.Advance(seconds(1));
  progress.Update();
  EXPECT_EQ(Printed(), "step 29\n");
}

TEST_F(ProgressLineTest, TheEndShowsTheLastState) {
  {
    ProgressLine progress(options_, clock_);
    progress.AddCount(
        "step", [&] { return steps_.value(); }, 10);
    progress.Update();
    steps_.Increment(10);
  }
  EXPECT_EQ(Printed(), "step 0/10\nstep 10/10\n");
}

TEST_F(ProgressLineTest, ALiveLineIsRewrittenInPlace) {
  FakeTerminal terminal(40);
  ProgressLine progress({.fd = terminal.fd()}, clock_);
  progress.AddCount("step", [&] { return steps_.value(); });
  progress.Update();
  steps_.Increment(5);
  clock_.Advance(milliseconds(249));
  progress.Update();
  EXPECT_THAT(terminal.Screen(), ElementsAre("step 0", "0"));
  clock_.Advance(milliseconds(1));
  progress.Update();
  EXPECT_THAT(terminal.Screen(), ElementsAre("step 5", "0"));
}

// Would catch a deadlock between the line and the log that appears above it.
TEST_F(ProgressLineTest, ASourceMayLog) {
  FakeTerminal terminal(40);
  ProgressLine progress({.fd = terminal.fd()}, clock_);
  progress.AddValue("return", [] {
    spdlog::info("asked");
    return 1.0;
  });
  progress.Update();
  clock_.Advance(seconds(1));
  progress.Update();
  EXPECT_THAT(terminal.Screen(), ElementsAre("return 1", "0"));
}

TEST_F(ProgressLineTest, IntervalsMustBePositive) {
  try {
    const ProgressLine progress({.rate_window = seconds(0)}, clock_);
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "ProgressLine: live_interval, plain_interval, rate_window and "
                 "left_window must be > 0, got 0 ns");
  }
}

}  // namespace
}  // namespace replicant::fleet
