#include "actors/evaluation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "core/base/check.h"

namespace replicant::actors {

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

EvaluationResult Evaluate(const agents::TaskSpec& task,
                          env::Environment* environment, PolicyRunner* policy,
                          const EvaluationOptions& options) {
  REPLICANT_CHECK(policy->noise_scales().empty(),
                  "a policy with noise is evaluated");
  const MutableTensorView wanted = policy->observations();
  std::vector<double> state;
  env::ObservationBuffer out;
  if (task.has_pixels) {
    out.pixels = wanted.Span<uint8_t>();
  } else {
    state.resize(static_cast<size_t>(task.observation.num_elements()));
    out.state = state;
  }
  const auto observe = [&] {
    if (!task.has_pixels) {
      std::copy(state.begin(), state.end(), wanted.Span<float>().begin());
    }
    options.on_step(*environment);
  };
  std::vector<double> action(static_cast<size_t>(task.action_size()));

  EvaluationResult result;
  for (int64_t i = 0; i < options.num_episodes; ++i) {
    env::TimeStep step = environment->Reset(out);
    observe();
    double sum = 0.0;
    for (int64_t t = 0; !step.IsLast(); ++t) {
      task.ToTaskRange(policy->Act(t).Span<float>(), action);
      step = environment->Step(action, out);
      observe();
      sum += step.reward;
    }
    result.returns.push_back(sum * options.return_scale);
  }
  return result;
}

}  // namespace replicant::actors
