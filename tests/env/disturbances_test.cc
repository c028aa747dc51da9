#include "env/disturbances.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/env/small_task.h"
#include "tests/support/message_of.h"

namespace replicant::env {
namespace {

using replicant::testing::MessageOf;
using testing::DefineSmallTask;
using ::testing::Each;
using ::testing::ElementsAre;

// Observes the number of its steps twice, plus one; its reward is the action.
class Counter : public Environment {
 public:
  Counter() {
    observation_spec_.arrays = {{.name = "count", .shape = Shape({2})}};
    action_spec_ = {.minimum = {-1.0, -1e10}, .maximum = {1.0, 1e10}};
  }

  const ObservationSpec& observation_spec() const override {
    return observation_spec_;
  }
  const ActionSpec& action_spec() const override { return action_spec_; }
  TimeStep Reset(const ObservationBuffer& out) override {
    ++counters_.episodes;
    step_ = 0;
    Observe(out);
    return {};
  }
  TimeStep Step(std::span<const double> action,
                const ObservationBuffer& out) override {
    ++step_;
    action_.assign(action.begin(), action.end());
    Observe(out);
    return {.step_type = step_ == 100 ? StepType::kLast : StepType::kMid,
            .reward = action[0]};
  }
  void SeekEpisode(int64_t episode) override { counters_.episodes = episode; }
  void Observe(const ObservationBuffer& out) override {
    for (double& value : out.state) value = static_cast<double>(1 + step_);
  }
  double control_timestep_s() const override { return 0.5; }
  const Physics& physics() const override { throw Error("none"); }
  Physics& mutable_physics() override { throw Error("none"); }
  bool ResetChangesAssets() const override { return false; }
  const EnvironmentCounters& counters() const override { return counters_; }

  const std::vector<double>& action() const { return action_; }

 private:
  int step_ = 0;
  std::vector<double> action_;
  ObservationSpec observation_spec_;
  ActionSpec action_spec_;
  EnvironmentCounters counters_;
};

struct Rig {
  explicit Rig(const DisturbanceConfig& config) {
    auto one = std::make_unique<Counter>();
    counter = one.get();
    environment = std::make_unique<Disturbances>(
        std::move(one), config, RandomStream(5, "disturbances"));
  }
  TimeStep Step(double a, double b = 0.0) {
    return environment->Step(std::array{a, b}, {.state = state});
  }
  void Reset() { environment->Reset({.state = state}); }

  Counter* counter;
  std::unique_ptr<Disturbances> environment;
  std::array<double, 2> state{};
};

TEST(DisturbancesTest, AnActionActsLate) {
  Rig rig({.delays = {.actions = 2}});
  rig.Reset();
  std::vector<double> acted;
  for (int i = 1; i <= 5; ++i) {
    rig.Step(0.1 * i);
    acted.push_back(rig.counter->action()[0]);
  }
  EXPECT_THAT(acted, ElementsAre(0.1, 0.1, 0.1, 0.2, 0.1 * 3));
}

TEST(DisturbancesTest, AnObservationAndARewardArriveLate) {
  Rig rig({.delays = {.observations = 2, .rewards = 1}});
  rig.Reset();
  std::vector<double> seen = {rig.state[0]};
  std::vector<double> rewards;
  for (int i = 1; i <= 4; ++i) {
    rewards.push_back(rig.Step(0.25 * i).reward);
    seen.push_back(rig.state[0]);
  }
  EXPECT_THAT(seen, ElementsAre(1.0, 1.0, 1.0, 2.0, 3.0));
  EXPECT_THAT(rewards, ElementsAre(0.0, 0.25, 0.5, 0.75));

  // the next episode knows nothing of the last one
  rig.Reset();
  EXPECT_EQ(rig.state[0], 1.0);
  EXPECT_EQ(rig.Step(0.25).reward, 0.0);
  rig.state = {};
  rig.environment->Observe({.state = rig.state});
  EXPECT_EQ(rig.state[0], 1.0) << "Observe() repeats what was delivered";
}

TEST(DisturbancesTest, NoiseHasItsStandardDeviationAndActionsTheirBounds) {
  Rig rig({.gaussian = {.actions = 0.5, .observations = 2.0}});
  double sum = 0.0;
  double squares = 0.0;
  double action_squares = 0.0;
  constexpr int kEpisodes = 100;
  for (int episode = 0; episode < kEpisodes; ++episode) {
    rig.Reset();
    for (int i = 1; i <= 100; ++i) {
      rig.Step(0.9);
      const double noise = rig.state[1] - (1.0 + i);
      sum += noise;
      squares += noise * noise;
      EXPECT_LE(rig.counter->action()[0], 1.0);
      action_squares += rig.counter->action()[1] * rig.counter->action()[1];
    }
  }
  constexpr double kCount = 100.0 * kEpisodes;
  // 5 sigma of a mean of 10,000, and of a variance
  EXPECT_NEAR(sum / kCount, 0.0, 5.0 * 2.0 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 4.0, 5.0 * 4.0 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(action_squares / kCount, 0.25,
              5.0 * 0.25 * std::sqrt(2.0 / kCount))
      << "an actuator without bounds is not clipped";
}

TEST(DisturbancesTest, DroppedNumbersAreZeroAndStuckOnesStay) {
  Rig dropped({.dropped = {.probability = 0.1, .steps = 3}});
  dropped.Reset();
  int run = 0;
  int num_zeros = 0;
  for (int i = 1; i <= 90; ++i) {
    dropped.Step(0.0);
    if (dropped.state[0] == 0.0) {
      ++run;
      ++num_zeros;
    } else {
      EXPECT_EQ(dropped.state[0], 1.0 + i);
      EXPECT_EQ(run % 3, 0) << "a failure lasts three steps";
      run = 0;
    }
  }
  EXPECT_GT(num_zeros, 0);

  Rig stuck({.stuck = {.probability = 1.0, .steps = 1000}});
  stuck.Reset();
  for (int i = 1; i <= 5; ++i) {
    stuck.Step(0.0);
    EXPECT_THAT(stuck.state, Each(1.0));
  }
}

TEST(DisturbancesTest, ARepeatedActionActsInPlaceOfTheNext) {
  Rig rig({.repetition = {.probability = 1.0, .steps = 2}});
  rig.Reset();
  std::vector<double> acted;
  for (int i = 1; i <= 7; ++i) {
    rig.Step(0.125 * i);
    acted.push_back(rig.counter->action()[0]);
  }
  EXPECT_THAT(acted, ElementsAre(0.125, 0.125, 0.125, 0.5, 0.5, 0.5, 0.875));
}

TEST(DisturbancesTest, ASeekRepeatsAnEpisode) {
  const DisturbanceConfig config{
      .delays = {.observations = 1},
      .gaussian = {.actions = 0.1, .observations = 1.0},
      .dropped = {.probability = 0.2, .steps = 2}};
  const auto episode = [](Rig& rig) {
    rig.Reset();
    std::vector<double> seen(rig.state.begin(), rig.state.end());
    for (int i = 0; i < 20; ++i) {
      seen.push_back(rig.Step(0.1).reward);
      seen.insert(seen.end(), rig.state.begin(), rig.state.end());
    }
    return seen;
  };
  Rig rig(config);
  episode(rig);
  const auto second = episode(rig);
  Rig other(config);
  other.environment->SeekEpisode(1);
  EXPECT_EQ(episode(other), second);
}

TEST(DisturbancesTest, APushMovesABodyAndEnds) {
  const TemporaryFolder folder;
  Disturbances environment(
      MakeEnvironment(DefineSmallTask(folder, {.time_limit_s = 1.0}), {}),
      {.push = {.bodies = "m*",
                .newton = 10.0,
                .when = {.probability = 1.0, .steps = 2}}},
      RandomStream(5, "disturbances"));
  environment.Reset({});
  const std::array action = {0.0, 0.0};
  const Physics& physics = environment.physics();
  environment.Step(action, {});
  const double force = physics.data().xfrc_applied[6];
  EXPECT_NE(force, 0.0);
  // mass 1 kg, 0.01 s
  EXPECT_NEAR(physics.qvel()[0], 0.01 * force, 1e-12);
  environment.Step(action, {});
  EXPECT_EQ(physics.data().xfrc_applied[6], force);
  environment.Step(action, {});
  EXPECT_NE(physics.data().xfrc_applied[6], force) << "another push";
  environment.Reset({});
  EXPECT_EQ(physics.data().xfrc_applied[6], 0.0);

  EXPECT_EQ(MessageOf<InvalidArgument>([&folder] {
              Disturbances(MakeEnvironment(DefineSmallTask(folder), {}),
                           {.push = {.bodies = "arm",
                                     .newton = 1.0,
                                     .when = {.probability = 0.5}}},
                           RandomStream(5, "disturbances"));
            }),
            "small-push: task.disturbances.push.bodies: no body matches 'arm'; "
            "the names are mass");
}

}  // namespace
}  // namespace replicant::env
