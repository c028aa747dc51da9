#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace replicant::env {

// The rewards of a goal environment for other goals than its own: the part of
// Gymnasium-Robotics' GoalEnv that hindsight needs (actors/hindsight.h). Its
// observations have the array kAchievedGoal, which an agent need not see, and
// kDesiredGoal, of one size G. Steps are those of the newest episode: 1, 2, ...
//
// Thread-safety: as the environment that has it.
class GoalReward {
 public:
  static constexpr const char* kAchievedGoal = "achieved_goal";
  static constexpr const char* kDesiredGoal = "desired_goal";

  struct Result {
    double reward = 0.0;
    double discount = 1.0;  // 0 where the step would have terminated
  };

  virtual ~GoalReward() = default;

  // G.
  virtual int64_t goal_size() const = 0;

  // Returns the goal achieved after step `step`, [G].
  virtual std::vector<double> Achieved(int64_t step) = 0;

  // Returns what step `step` would have given if its goal had been `desired`
  // [G].
  virtual Result Of(int64_t step, std::span<const double> desired) = 0;
};

}  // namespace replicant::env
