#include "actors/hindsight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace replicant::actors {
namespace {

// Numbers of an observation: its step and the desired goal.
constexpr int64_t kDesired = 1;
constexpr size_t kLength = 6;

// The achieved goal of step t is 10 t.
class CountingReward : public env::GoalReward {
 public:
  int64_t goal_size() const override { return 1; }
  std::vector<double> Achieved(int64_t step) override {
    return {10.0 * static_cast<double>(step)};
  }
  Result Of(int64_t step, std::span<const double> desired) override {
    const bool is_there = Achieved(step)[0] == desired[0];
    return {.reward = is_there ? 0.0 : -1.0,
            .discount = is_there && terminates ? 0.0 : 1.0};
  }
  bool terminates = false;
};

// The episodes that were written.
struct WrittenStep {
  std::vector<float> observation;
  float action = 0.0F, reward = 0.0F, discount = 0.0F;
};
struct WrittenEpisode {
  std::vector<WrittenStep> steps;
  std::vector<float> last;
};
class Recorder : public replay::StepSink {
 public:
  void BeginEpisode() override { episodes.emplace_back(); }
  void Append(const replay::Step& step) override {
    WrittenStep written{.observation = Floats(step.observation),
                        .reward = step.reward,
                        .discount = step.discount};
    written.action = Floats(step.action)[0];
    EXPECT_EQ(step.frame.size(), 1U);
    EXPECT_EQ(static_cast<float>(step.frame[0]), written.observation[0]);
    episodes.back().steps.push_back(written);
  }
  void EndEpisode(std::span<const std::byte> observation,
                  std::span<const std::byte> /*frame*/) override {
    episodes.back().last = Floats(observation);
  }

  static std::vector<float> Floats(std::span<const std::byte> bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  std::vector<WrittenEpisode> episodes;
};

HindsightSink::Options OptionsOf(int64_t goals, uint64_t seed) {
  return {.goals = goals, .seed = seed, .desired = kDesired};
}

// Plays one episode of kLength steps with the goal 1000, which none achieves.
void PlayInto(HindsightSink& sink) {
  const auto observation = [](size_t t) {
    const auto step = static_cast<float>(t);
    return std::vector<float>{step, 1000.0F};
  };
  sink.BeginEpisode();
  for (size_t t = 0; t < kLength; ++t) {
    const std::vector<float> seen = observation(t);
    const float action = 0.5F * static_cast<float>(t);
    const std::byte frame{static_cast<uint8_t>(t)};
    sink.Append({.observation = std::as_bytes(std::span(seen)),
                 .frame = {&frame, 1},
                 .action = std::as_bytes(std::span(&action, 1)),
                 .reward = -1.0F});
  }
  const std::byte frame{kLength};
  const std::vector<float> last = observation(kLength);
  sink.EndEpisode(std::as_bytes(std::span(last)), {&frame, 1});
}

std::vector<WrittenEpisode> Play(int64_t goals, uint64_t seed,
                                 bool terminates = false) {
  CountingReward reward;
  reward.terminates = terminates;
  Recorder recorder;
  HindsightSink sink(OptionsOf(goals, seed), &reward, &recorder);
  PlayInto(sink);
  return recorder.episodes;
}

TEST(HindsightSinkTest, WritesTheEpisodeFirstAsItWas) {
  const auto episodes = Play(/*goals=*/4, /*seed=*/1);
  ASSERT_EQ(episodes[0].steps.size(), kLength);
  for (const WrittenStep& step : episodes[0].steps) {
    EXPECT_EQ(step.observation[kDesired], 1000.0F);
    EXPECT_EQ(step.reward, -1.0F);
  }
  EXPECT_EQ(Play(/*goals=*/0, /*seed=*/1).size(), 1U);
}

TEST(HindsightSinkTest, EachCopyHasEachStepOnceWithAGoalFromItsFuture) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto episodes = Play(/*goals=*/3, seed);
    std::map<float, int> times;
    for (size_t k = 1; k < episodes.size(); ++k) {
      const WrittenEpisode& episode = episodes[k];
      ASSERT_FALSE(episode.steps.empty());
      const float goal = episode.last[kDesired];
      // it ends where its goal is achieved, and is cut off there
      EXPECT_EQ(10.0F * episode.last[0], goal);
      float next = episode.steps[0].observation[0];
      for (const WrittenStep& step : episode.steps) {
        ++times[step.observation[0]];
        EXPECT_EQ(step.observation[0], next++);
        EXPECT_EQ(step.observation[kDesired], goal);
        EXPECT_EQ(step.action, 0.5F * step.observation[0]);
        EXPECT_EQ(step.discount, 1.0F);
        EXPECT_EQ(step.reward,
                  10.0F * (step.observation[0] + 1.0F) == goal ? 0.0F : -1.0F);
      }
      EXPECT_EQ(episode.last[0], next);
    }
    EXPECT_EQ(times.size(), kLength);
    for (const auto& [step, count] : times) EXPECT_EQ(count, 3) << step;
  }
}

// Strategy "future": of step t the goal is uniform over t + 1 ... T.
TEST(HindsightSinkTest, GoalsAreUniformOverTheFutureOfAStep) {
  constexpr int kSeeds = 4000;
  std::map<float, std::map<float, int>> goals;  // by step
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto episodes = Play(/*goals=*/1, seed);
    for (size_t k = 1; k < episodes.size(); ++k) {
      for (const WrittenStep& step : episodes[k].steps) {
        ++goals[step.observation[0]][step.observation[kDesired] / 10.0F];
      }
    }
  }
  for (size_t t = 0; t < kLength; ++t) {
    const auto& drawn = goals.at(static_cast<float>(t));
    const size_t later = kLength - t;
    ASSERT_EQ(drawn.size(), later);
    const double p = 1.0 / static_cast<double>(later);
    // five standard deviations of a binomial count
    const double tolerance = 5.0 * std::sqrt(kSeeds * p * (1.0 - p));
    for (const auto& [goal, count] : drawn) {
      EXPECT_GT(goal, static_cast<float>(t));
      EXPECT_NEAR(count, kSeeds * p, tolerance) << t << " " << goal;
    }
  }
}

TEST(HindsightSinkTest, AStepThatWouldHaveTerminatedEndsTheCopysEpisode) {
  const auto episodes = Play(/*goals=*/2, /*seed=*/3, /*terminates=*/true);
  for (size_t k = 1; k < episodes.size(); ++k) {
    EXPECT_EQ(episodes[k].steps.back().discount, 0.0F);
    EXPECT_EQ(episodes[k].steps.back().reward, 0.0F);
  }
}

TEST(HindsightSinkTest, TheSameEpisodeHasTheSameGoals) {
  const auto goals_of = [](uint64_t seed) {
    std::vector<float> goals;
    for (const auto& episode : Play(/*goals=*/4, seed)) {
      goals.push_back(episode.last[kDesired]);
    }
    return goals;
  };
  EXPECT_EQ(goals_of(1), goals_of(1));
  EXPECT_NE(goals_of(1), goals_of(2));
}

// A resumed actor repeats its episode, whose copies were written at its end.
TEST(HindsightSinkTest, ARepeatedEpisodeHasNoSecondCopies) {
  const auto written = Play(/*goals=*/2, /*seed=*/1);
  CountingReward reward;
  Recorder recorder;
  HindsightSink sink(OptionsOf(/*goals=*/2, /*seed=*/1), &reward, &recorder);
  sink.SetRepeating(true);
  PlayInto(sink);
  EXPECT_EQ(recorder.episodes.size(), 1U);
  sink.SetRepeating(false);
  PlayInto(sink);
  ASSERT_EQ(recorder.episodes.size(), 1 + written.size());
  EXPECT_EQ(recorder.episodes.back().last, written.back().last);
}

}  // namespace
}  // namespace replicant::actors
