#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "actors/policy_runner.h"
#include "agents/task_spec.h"
#include "env/environment.h"

namespace replicant::actors {

// Returns of some episodes, in the Control Suite's units: the sum of the
// rewards of all control steps.
struct EvaluationResult {
  std::vector<double> returns;
  std::vector<int64_t> lengths;  // agent steps

  // Of an evaluation with at least one episode.
  double Mean() const;
  // Of the sample; 0 for less than two.
  double StandardDeviation() const;
  double Min() const;
  double Max() const;
  double MeanLength() const;
};

struct EvaluationOptions {
  int64_t num_episodes = 10;
  // What one agent step's reward stands for: the action repeat if rewards are
  // averaged over it, else 1.
  double return_scale = 1.0;
  // Called after every step, the first one of an episode included.
  std::function<void(const env::TimeStep&)> on_step = [](const env::TimeStep&) {
  };
  // Asked after every step; true gives the evaluation up.
  std::function<bool()> should_stop = [] { return false; };
};

// Lets the policy act without noise, in the first episodes of the environment:
// each evaluation begins in the same states. `environment` gives what `task`
// says; `policy` is for one environment and has no noise (checked).
//
// std::nullopt if it was given up.
std::optional<EvaluationResult> Evaluate(const agents::TaskSpec& task,
                                         env::Environment* environment,
                                         PolicyRunner* policy,
                                         const EvaluationOptions& options);

}  // namespace replicant::actors
