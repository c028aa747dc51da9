#include "evaluation/evaluation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace replicant::evaluation {

double EvaluationResult::Mean() const {
  return std::accumulate(returns.begin(), returns.end(), 0.0) /
         static_cast<double>(returns.size());
}

double EvaluationResult::StandardDeviation() const {
  if (returns.size() < 2) return 0.0;
  const double mean = Mean();
  double sum = 0.0;
  for (const double value : returns) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(returns.size() - 1));
}

double EvaluationResult::Min() const {
  return *std::min_element(returns.begin(), returns.end());
}

double EvaluationResult::Max() const {
  return *std::max_element(returns.begin(), returns.end());
}

double EvaluationResult::MeanLength() const {
  return static_cast<double>(
             std::accumulate(lengths.begin(), lengths.end(), int64_t{0})) /
         static_cast<double>(lengths.size());
}

std::optional<EvaluationResult> Evaluate(const agents::TaskSpec& task,
                                         env::Environment* environment,
                                         actors::PolicyRunner* policy,
                                         const EvaluationOptions& options) {
  REPLICANT_CHECK(policy->noise_scales().empty(),
                  "a policy with noise is evaluated");
  const MutableTensorView wanted = policy->observations();
  std::vector<double> state(static_cast<size_t>(task.num_state_values()));
  env::ObservationBuffer out{.state = state};
  if (task.has_pixels) out.pixels = wanted.Span<uint8_t>();
  const std::span<float> values =
      task.has_pixels ? policy->states() : wanted.Span<float>();
  const auto observe = [&](const env::TimeStep& step) {
    std::ranges::copy(state, values.begin());
    options.on_step(step);
  };
  std::vector<double> action(static_cast<size_t>(task.action_size()));

  EvaluationResult result;
  environment->SeekEpisode(/*episode=*/0);
  for (int64_t i = 0; i < options.num_episodes; ++i) {
    env::TimeStep step = environment->Reset(out);
    observe(step);
    double sum = 0.0;
    int64_t length = 0;
    int64_t num_control_steps = 0;
    while (!step.IsLast() && !result.is_cut) {
      if (options.should_stop()) return std::nullopt;
      task.ToTaskRange(policy->Act(length).Span<float>(), action);
      step = environment->Step(action, out);
      observe(step);
      sum += task.SumOfRewards(step);
      ++length;
      num_control_steps += step.control_steps;
      result.is_cut =
          !step.IsLast() && num_control_steps >= options.max_episode_steps;
    }
    result.returns.push_back(sum);
    result.lengths.push_back(length);
    if (result.is_cut) break;
  }
  return result;
}

}  // namespace replicant::evaluation
