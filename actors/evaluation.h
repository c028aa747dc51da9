#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "actors/policy_runner.h"
#include "agents/task_spec.h"
#include "env/environment.h"

namespace replicant::actors {

// Returns of some episodes, in the Control Suite's units: the sum of the
// rewards of all control steps.
struct EvaluationResult {
  std::vector<double> returns;

  double Mean() const;
  // Of the sample; 0 for less than two.
  double StandardDeviation() const;
};

struct EvaluationOptions {
  int64_t num_episodes = 10;
  // What one agent step's reward stands for: the action repeat if rewards are
  // averaged over it, else 1.
  double return_scale = 1.0;
  // Called after every step, the first one of an episode included.
  std::function<void(env::Environment&)> on_step = [](env::Environment&) {};
};

// Lets the policy act without noise. `environment` gives what `task` says, and
// starts its episodes from its own seed; `policy` is for one environment and
// has no noise (checked).
EvaluationResult Evaluate(const agents::TaskSpec& task,
                          env::Environment* environment, PolicyRunner* policy,
                          const EvaluationOptions& options);

}  // namespace replicant::actors
