#include "programs/sweep/sweep_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/config/load.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MessageOf;

SweepConfig ReadSweep(const std::string& text) {
  return config::Load<SweepConfig>(
             config::Document::FromText("sweep.yaml", text))
      .config;
}

TEST(SweepConfigTest, CombinesVariantsValuesAndSeeds) {
  const std::vector<SweepRun> runs = RunsOf(ReadSweep(R"(
config: run.yaml
variants:
  - {name: plain}
  - {name: lap, set: [agent.priority=lap, a.b=1]}
grid:
  - {key: agent.tau, values: [0.01, 0.02]}
seeds: [7, 8]
)"));
  ASSERT_EQ(runs.size(), 8U);
  EXPECT_EQ(runs[0].label, "plain, agent.tau=0.01");
  EXPECT_THAT(runs[0].settings, ElementsAre("agent.tau=0.01"));
  EXPECT_EQ(runs[0].seed, 7);
  EXPECT_EQ(runs[1].seed, 8);
  EXPECT_EQ(runs[7].label, "lap, agent.tau=0.02");
  EXPECT_THAT(runs[7].settings,
              ElementsAre("agent.priority=lap", "a.b=1", "agent.tau=0.02"));
}

TEST(SweepConfigTest, DrawsTheSameEachTimeWithinTheBounds) {
  const std::string text = R"(
config: run.yaml
random:
  - {key: a.rate, low: 1e-5, high: 1e-1, scale: log}
  - {key: a.share, low: 2, high: 3}
draws: 200
)";
  const std::vector<SweepRun> runs = RunsOf(ReadSweep(text));
  ASSERT_EQ(runs.size(), 200U);
  int num_small = 0;
  for (const SweepRun& run : runs) {
    ASSERT_EQ(run.settings.size(), 2U);
    const double rate = std::stod(run.settings[0].substr(7));
    EXPECT_GE(rate, 1e-5);
    EXPECT_LE(rate, 1e-1);
    num_small += rate < 1e-3 ? 1 : 0;
    const double share = std::stod(run.settings[1].substr(8));
    EXPECT_GE(share, 2.0);
    EXPECT_LE(share, 3.0);
  }
  // half of the exponents lie below
  EXPECT_GT(num_small, 60);
  EXPECT_LT(num_small, 140);
  EXPECT_EQ(RunsOf(ReadSweep(text))[199].settings, runs[199].settings);
  EXPECT_NE(RunsOf(ReadSweep(text + "draw_seed: 2\n"))[199].settings,
            runs[199].settings);
}

// Would catch a batch size of 22.43, and bounds that are hardly drawn.
TEST(SweepConfigTest, DrawsWholeNumbersFromLowToHigh) {
  const std::vector<SweepRun> runs = RunsOf(ReadSweep(R"(
config: run.yaml
random:
  - {key: a.count, low: -1, high: 2, integer: true}
  - {key: a.bytes, low: 1, high: 1000000, scale: log, integer: true}
draws: 400
)"));
  std::map<std::string, int> counts;
  int num_small = 0;
  for (const SweepRun& run : runs) {
    ASSERT_EQ(run.settings.size(), 2U);
    ++counts[run.settings[0]];
    const std::string bytes = run.settings[1].substr(8);
    EXPECT_EQ(bytes.find_first_not_of("0123456789"), std::string::npos);
    EXPECT_GE(std::stoll(bytes), 1);
    EXPECT_LE(std::stoll(bytes), 1'000'000);
    num_small += std::stoll(bytes) < 1000 ? 1 : 0;
  }
  ASSERT_EQ(counts.size(), 4U);
  // 100 of each expected, the deviation is 8.7
  for (const int number : {-1, 0, 1, 2}) {
    EXPECT_NEAR(counts[fmt::format("a.count={}", number)], 100, 44);
  }
  // half of the exponents lie below, the deviation is 10
  EXPECT_NEAR(num_small, 200, 50);
}

TEST(SweepConfigTest, WithoutSettingsOnlyTheSeedDiffers) {
  const std::vector<SweepRun> runs =
      RunsOf(ReadSweep("{config: run.yaml, seeds: [1, 2, 3]}"));
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[2].label, "as configured");
}

TEST(SweepConfigTest, NamesEveryMistake) {
  const std::string message = MessageOf([] {
    ReadSweep(R"(
variants: [{name: a}, {name: a}]
grid: [{key: agent.tau}]
random:
  - {key: x, low: 0, high: 1, scale: log}
  - {key: y, low: 2, high: 2}
  - {key: z, low: 0.5, high: 2, integer: true}
seeds: [1, 1]
job: 2
)");
  });
  for (const char* part :
       {"config: is empty; want a file", "variants: has 'a' twice",
        "values: is empty; want values", "scale log wants more than 0",
        "is 2; want more than low, 2",
        "integer: true from low 0.5 to high 2; want whole numbers below 2^53",
        "seeds: has a seed twice", "did you mean 'jobs'"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

// Would catch labels that name what is not trained, and runs that are trained
// twice.
TEST(SweepConfigTest, EveryKeyHasOnePlace) {
  const std::string message = MessageOf([] {
    ReadSweep(R"(
config: run.yaml
variants:
  - {name: a, set: [agent.tau=1]}
  - {name: b, set: [run.dir=x]}
grid:
  - {key: run.seed, values: [5, 6]}
  - {key: agent.tau, values: [1, 2, 1]}
  - {key: agent.tau, values: [3]}
random:
  - {key: run.dir}
  - {key: agent.tau}
)");
  });
  for (const char* part :
       {"variants.1.set: sets run.dir, as the sweep does; hint: use 'folder'",
        "grid.0.key: sets run.seed, as the sweep does; hint: use 'seeds'",
        "grid.1.values: has a value twice",
        "grid: has agent.tau again; want a key once in grid and random",
        "random.0.key: sets run.dir, as the sweep does; hint: use 'folder'",
        "random: has agent.tau again; want a key once in grid and random",
        "variants: 'a' sets agent.tau, as grid or random does"}) {
    EXPECT_THAT(message, HasSubstr(part));
  }
}

}  // namespace
}  // namespace replicant::programs
