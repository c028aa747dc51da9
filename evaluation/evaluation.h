#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "actors/policy_runner.h"
#include "agents/task_spec.h"
#include "env/environment.h"

namespace replicant::evaluation {

// Returns of some episodes, in the Control Suite's units: the sum of the
// rewards of all control steps.
struct EvaluationResult {
  std::vector<double> returns;
  std::vector<int64_t> lengths;  // agent steps
  // Whether the last of these episodes had no end and was cut off.
  bool is_cut = false;

  // Over the episodes; there must be at least one.
  double Mean() const;
  // Sample standard deviation; 0 for fewer than two episodes.
  double StandardDeviation() const;
  double Min() const;
  double Max() const;
  double MeanLength() const;
};

struct EvaluationOptions {
  int64_t num_episodes = 10;
  // Control steps after which an episode is cut off. It is the last one then:
  // the others would take as long.
  int64_t max_episode_steps = std::numeric_limits<int64_t>::max();
  // Called after every step, including the first of an episode.
  std::function<void(const env::TimeStep&)> on_step = [](const env::TimeStep&) {
  };
  // Called after every step; true ends the evaluation without a result.
  std::function<bool()> should_stop = [] { return false; };
};

// Runs the policy without noise in the environment's first episodes, so that
// all evaluations begin in the same states. `environment` must be one of
// `task`; `policy` must be for one environment and without noise (checked).
//
// std::nullopt if should_stop() has ended the evaluation.
std::optional<EvaluationResult> Evaluate(const agents::TaskSpec& task,
                                         env::Environment* environment,
                                         actors::PolicyRunner* policy,
                                         const EvaluationOptions& options);

}  // namespace replicant::evaluation
