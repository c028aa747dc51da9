// Properties of every task of the suite; the numbers are held against
// dm_control in suite_parity_test.cc.
#include "env/tasks/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "env/rewards.h"
#include "env/task_registry.h"
#include "tests/env/tasks/every_task.h"

namespace replicant::env {
namespace {

TEST(SuiteTest, HasTheTasksOfDmControl) {
  EXPECT_EQ(TaskRegistry(SuiteTasks()).tasks().size(), 51U);
}

class EverySuiteTask : public ::testing::TestWithParam<std::string> {
 protected:
  EverySuiteTask()
      : definition_(TaskRegistry(SuiteTasks()).Find(GetParam())),
        model_(LoadModel(definition_, {})) {}

  std::unique_ptr<ControlEnvironment> Make(uint64_t seed) {
    return MakeEnvironment(definition_, {.seed = seed}, *model_);
  }

  const TaskDefinition definition_;
  const MjModelPtr model_;
};

// Observations and rewards of a few steps of two episodes, or of the second
// alone.
std::vector<double> Play(ControlEnvironment& environment,
                         int first_episode = 0) {
  const ActionSpec& spec = environment.action_spec();
  RandomStream random(5, "test");
  std::vector<double> all;
  std::vector<double> state(
      static_cast<size_t>(environment.observation_spec().state_size()));
  std::vector<double> action(spec.minimum.size());
  environment.SeekEpisode(first_episode);
  for (int episode = 0; episode < 2; ++episode) {
    const bool is_played = episode >= first_episode;
    if (is_played) {
      environment.Reset({.state = state});
      all.insert(all.end(), state.begin(), state.end());
    }
    for (int t = 0; t < 3; ++t) {
      for (double& a : action) a = random.Uniform(-1.0, 1.0);
      if (!is_played) continue;
      all.push_back(environment.Step(action, {.state = state}).reward);
      all.insert(all.end(), state.begin(), state.end());
    }
  }
  return all;
}

TEST_P(EverySuiteTask, SameSeedGivesTheSameBitsAndAnotherOthers) {
  const auto first = Make(1);
  const auto second = Make(1);
  const auto other = Make(2);
  const std::vector<double> numbers = Play(*first);
  EXPECT_EQ(numbers, Play(*second));
  EXPECT_NE(numbers, Play(*other));
  EXPECT_TRUE(std::all_of(numbers.begin(), numbers.end(),
                          [](double x) { return std::isfinite(x); }));
  EXPECT_EQ(first->counters().divergences, 0);
}

// A training that is resumed has nothing else of its environments.
TEST_P(EverySuiteTask, AnEpisodeIsMadeAgainFromItsNumberAndItsActions) {
  const std::vector<double> all = Play(*Make(1));
  const std::vector<double> second = Play(*Make(1), /*first_episode=*/1);
  EXPECT_EQ(second, std::vector<double>(
                        all.begin() +
                            static_cast<ptrdiff_t>(all.size() - second.size()),
                        all.end()));
  EXPECT_EQ(all.size(), 2 * second.size());
}

TEST_P(EverySuiteTask, AnEpisodeHasAThousandStepsButLqrHasNoLimit) {
  const auto environment = Make(1);
  if (GetParam().starts_with("lqr")) {
    EXPECT_EQ(environment->step_limit(), kInfinity);
  } else {
    EXPECT_EQ(std::ceil(environment->step_limit()), 1000.0);
  }
}

INSTANTIATE_TEST_SUITE_P(AllTasks, EverySuiteTask,
                         ::testing::ValuesIn(testing::TaskNames()),
                         testing::TestName);

}  // namespace
}  // namespace replicant::env
