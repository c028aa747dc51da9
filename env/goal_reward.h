#pragma once

#include <cstdint>
#include <span>

namespace replicant::env {

// The rewards of a goal environment for other goals than its own: the part of
// Gymnasium-Robotics' GoalEnv that hindsight needs (actors/hindsight.h). Its
// observations have the arrays kAchievedGoal and kDesiredGoal, of one size G.
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

  // Returns what step `step` (1, 2, ...) of the newest episode would have given
  // if its goal had been `desired` [G]. `achieved` [G] is the goal achieved
  // after that step.
  virtual Result Of(int64_t step, std::span<const double> achieved,
                    std::span<const double> desired) = 0;
};

}  // namespace replicant::env
