#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/config/reader.h"
#include "evaluation/evaluation_log.h"

namespace replicant::programs {

// The median stopping rule: a run that has reached step s is stopped if its
// best return so far is below the median, over the complete runs, of the mean
// of their returns up to s.
//
// Source: Golovin et al., "Google Vizier: A Service for Black-Box
// Optimization", KDD 2017, section 3.2.1.
struct MedianRule {
  using Evaluations =
      std::vector<evaluation::EvaluationRecord>;  // oldest first

  bool is_enabled = false;
  int64_t min_steps = 0;          // of the learner, before a run is judged
  int64_t min_complete_runs = 3;  // that have an evaluation up to its step

  static MedianRule Read(config::Reader& reader);

  // Returns the median if `run` lies below it; nothing if the run continues.
  std::optional<double> MedianAbove(
      const Evaluations& run, std::span<const Evaluations> complete) const;
};

}  // namespace replicant::programs
