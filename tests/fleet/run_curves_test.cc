#include "fleet/run_curves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/fs.h"

namespace replicant::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class RunCurvesTest : public ::testing::Test {
 protected:
  using Numbers = std::map<std::string, BeatNumber>;
  static BeatNumber Counter(double value) {
    return {BeatNumber::Kind::kCounter, value};
  }
  static BeatNumber Gauge(double value) {
    return {BeatNumber::Kind::kGauge, value};
  }
  void Beat(const RoleId& id, const Numbers& numbers) {
    Heartbeat beat;
    beat.id = id;
    beat.state = RoleState::kRunning;
    beat.numbers = numbers;
    monitor_.Expect(id, 1);
    monitor_.Receive(beat);
  }
  void Update(RunCurves& curves) {
    clock_.Advance(std::chrono::seconds(5));
    status_.Update({}, monitor_.All(), /*is_stopping=*/false, clock_.Now());
    curves.Update(status_, monitor_);
  }

  TemporaryFolder folder_;
  FakeClock clock_;
  FleetStatus status_;
  HeartbeatMonitor monitor_{clock_};
};

TEST_F(RunCurvesTest, PutsTheNumbersOfRolesOverTheLearnersSteps) {
  using Kind = CurveField::Kind;
  {
    RunCurves curves(folder_.path(), {"learner", "updates", "frames"},
                     {{Kind::kMean, "actors/return", "actor", "return"},
                      {Kind::kRate, "actors/rate", "actor", "frames"},
                      {Kind::kRateOfEach, "actors/rate", "actor", "frames"},
                      {Kind::kBehindSteps, "actors/lag", "actor", "policy"},
                      {Kind::kSum, "replay/items", "replay", "items"}},
                     /*disk=*/nullptr, &clock_);
    // without a learner there is no place yet
    Update(curves);
    Beat({"learner", 0}, {{"updates", Gauge(50)}, {"frames", Gauge(800)}});
    for (const double seconds : {0.0, 5.0}) {
      Beat({"actor", 0}, {{"return", Gauge(10)},
                          {"frames", Counter(100 + 20 * seconds)},
                          {"policy", Gauge(40)}});
      Beat({"actor", 1}, {{"return", Gauge(20)},
                          {"frames", Counter(100 + 10 * seconds)},
                          {"policy", Gauge(46)}});
      Update(curves);
    }
  }
  const std::string lines = ReadFile(folder_.path() / "fleet.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 2) << lines;
  EXPECT_THAT(lines, HasSubstr("{\"step\":50,\"frames\":800,\"actors/lag\":7"));
  EXPECT_THAT(lines,
              HasSubstr("\"actors/rate\":30.0,\"actors/rate/actor-0\":20.0,"
                        "\"actors/rate/actor-1\":10.0,"
                        "\"actors/return\":15.0}"));
  EXPECT_THAT(lines, Not(HasSubstr("items")));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() / "by_frames" / "fleet"));
}

// Would catch a line whose length grows with the fleet without end.
TEST_F(RunCurvesTest, ALargeFleetHasTheRateOfAllActorsAlone) {
  using Kind = CurveField::Kind;
  RunCurves curves(folder_.path(), {"learner", "updates", "frames"},
                   {{Kind::kRate, "rate", "actor", "frames"},
                    {Kind::kRateOfEach, "rate", "actor", "frames"}},
                   /*disk=*/nullptr, &clock_);
  Beat({"learner", 0}, {{"updates", Gauge(50)}});
  const auto beat = [&](int64_t num_actors, double frames) {
    for (int64_t i = 0; i < num_actors; ++i) {
      Beat({"actor", static_cast<uint32_t>(i)}, {{"frames", Counter(frames)}});
    }
    Update(curves);
  };
  const auto count_of_each = [&] {
    curves.Flush();
    const std::string lines = ReadFile(folder_.path() / "fleet.jsonl");
    const std::string last =
        lines.substr(lines.rfind('\n', lines.size() - 2) + 1);
    EXPECT_THAT(last, HasSubstr("\"rate\":"));
    int64_t count = 0;
    for (size_t at = last.find("rate/actor-"); at != std::string::npos;
         at = last.find("rate/actor-", at + 1)) {
      ++count;
    }
    return count;
  };
  beat(RunCurves::kMaxRatesOfEach, 10);
  beat(RunCurves::kMaxRatesOfEach, 20);
  EXPECT_EQ(count_of_each(), RunCurves::kMaxRatesOfEach);
  beat(RunCurves::kMaxRatesOfEach + 1, 30);
  EXPECT_EQ(count_of_each(), 0);
}

// The learner's report of its steps arrives after an actor's of its policy.
TEST_F(RunCurvesTest, TheLagIsNeverNegative) {
  RunCurves curves(folder_.path(), {"learner", "updates", "frames"},
                   {{CurveField::Kind::kBehindSteps, "lag", "actor", "policy"}},
                   /*disk=*/nullptr, &clock_);
  Beat({"learner", 0}, {{"updates", Gauge(50)}});
  Update(curves);
  Beat({"actor", 0}, {{"policy", Gauge(80)}});
  Update(curves);
  Beat({"actor", 1}, {{"policy", Gauge(74)}});
  Update(curves);
  curves.Flush();
  EXPECT_EQ(ReadFile(folder_.path() / "fleet.jsonl"),
            "{\"step\":50,\"frames\":0}\n"
            "{\"step\":50,\"frames\":0,\"lag\":0.0}\n"
            "{\"step\":50,\"frames\":0,\"lag\":3.0}\n");
}

// A learner that has died goes on from its last checkpoint, and reports its
// frames later than its step.
TEST_F(RunCurvesTest, PointsOfStepsThatTheLearnerHasLostAreRemoved) {
  RunCurves curves(folder_.path(), {"learner", "updates", "frames"},
                   {{CurveField::Kind::kMean, "a", "actor", "return"}},
                   /*disk=*/nullptr, &clock_);
  const auto report = [&](double step, std::optional<double> frames) {
    Numbers numbers = {{"updates", Gauge(step)}};
    if (frames) numbers["frames"] = Gauge(*frames);
    Beat({"learner", 0}, numbers);
    Beat({"actor", 0}, {{"return", Gauge(step)}});
    Update(curves);
  };
  for (const double step : {10, 20, 30, 40}) report(step, 100 * step);
  report(25, std::nullopt);
  report(27, 2650);
  report(28, 2800);
  Update(curves);
  curves.Flush();
  std::vector<int64_t> steps;
  std::istringstream lines(ReadFile(folder_.path() / "fleet.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    steps.push_back(std::stoll(line.substr(line.find(':') + 1)));
  }
  EXPECT_THAT(steps, ElementsAre(10, 20, 25, 27, 28, 28));
}

TEST_F(RunCurvesTest, AFolderThatCannotBeWrittenEndsNoRun) {
  RunCurves curves("/dev/null/run", {"learner", "updates", "frames"},
                   {{CurveField::Kind::kMean, "a", "actor", "return"}},
                   /*disk=*/nullptr, &clock_);
  Beat({"learner", 0}, {{"updates", Gauge(50)}});
  EXPECT_NO_THROW(Update(curves));
}

}  // namespace
}  // namespace replicant::fleet
