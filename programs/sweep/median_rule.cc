#include "programs/sweep/median_rule.h"

#include <algorithm>

namespace replicant::programs {

MedianRule MedianRule::Read(config::Reader& reader) {
  MedianRule c;
  reader.Field("enabled", &c.is_enabled,
               "whether runs that fall behind the others are stopped");
  reader.Field("min_steps", &c.min_steps, {0, INT64_MAX},
               "steps of the learner before a run is judged");
  reader.Field("min_complete_runs", &c.min_complete_runs, {1, 1000},
               "complete runs before a run is judged");
  return c;
}

std::optional<double> MedianRule::MedianAbove(
    const Evaluations& run, std::span<const Evaluations> complete) const {
  if (!is_enabled || run.empty()) return std::nullopt;
  const int64_t step = run.back().step;
  if (step < min_steps) return std::nullopt;

  // the mean return of every complete run up to this step
  std::vector<double> means;
  for (const Evaluations& other : complete) {
    double sum = 0.0;
    int64_t count = 0;
    for (const evaluation::EvaluationRecord& record : other) {
      if (record.step > step) break;
      sum += record.mean;
      ++count;
    }
    if (count > 0) means.push_back(sum / static_cast<double>(count));
  }
  if (static_cast<int64_t>(means.size()) < min_complete_runs) {
    return std::nullopt;
  }
  std::ranges::sort(means);
  const size_t half = means.size() / 2;
  const double median = means.size() % 2 == 1
                            ? means[half]
                            : (means[half - 1] + means[half]) / 2.0;

  const double best =
      std::ranges::max_element(run, {}, &evaluation::EvaluationRecord::mean)
          ->mean;
  return best < median ? std::optional(median) : std::nullopt;
}

}  // namespace replicant::programs
