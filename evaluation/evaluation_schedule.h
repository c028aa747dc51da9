#pragma once

#include <cstdint>
#include <optional>

#include "evaluation/evaluation_config.h"

namespace replicant::evaluation {

// Decides when the next evaluation is due: at multiples of
// evaluation.interval_frames if that is set, else every evaluation.interval_s.
// The first one is due at once.
class EvaluationSchedule {
 public:
  explicit EvaluationSchedule(const EvaluationConfig& config)
      : interval_s_(config.interval_s),
        interval_frames_(config.interval_frames.value_or(0)) {}

  // `seconds` by any clock, `frames` of all actors.
  bool IsDue(double seconds, int64_t frames) const {
    return interval_frames_ > 0 ? frames >= next_frames_ : seconds >= next_s_;
  }
  // Plans the next evaluation, one interval from here.
  void Advance(double seconds, int64_t frames) {
    next_s_ = seconds + interval_s_;
    PlanAfter(frames);
  }
  // Plans by frames alone, after an evaluation at `frames`; none: the first
  // one.
  void PlanAfter(std::optional<int64_t> frames) {
    next_frames_ = frames && interval_frames_ > 0
                       ? (*frames / interval_frames_ + 1) * interval_frames_
                       : 0;
  }

 private:
  const double interval_s_;
  const int64_t interval_frames_;  // 0: by time
  double next_s_ = 0.0;
  int64_t next_frames_ = 0;
};

}  // namespace replicant::evaluation
