#pragma once

#include <cstdint>
#include <filesystem>

#include "base/process.h"
#include "env/task_registry.h"
#include "evaluation/best_policy.h"
#include "evaluation/evaluation_config.h"
#include "evaluation/evaluation_log.h"
#include "evaluation/evaluation_schedule.h"
#include "evaluation/evaluator.h"
#include "learner/learner.h"
#include "learner/workload.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

// Evaluates a workload's policy at the intervals of section `evaluation`
// (evaluation/evaluation_schedule.h) and writes the results to the evaluation
// log of the run (evaluation/evaluation_log.h).
//
// Thread-safety: one thread makes all calls, the workload's.
class PeriodicEvaluation {
 public:
  // `registry`, `workload` and `stop` outlive this object. `folder` is the
  // run's.
  PeriodicEvaluation(const RunConfig& config, const env::TaskRegistry& registry,
                     const std::filesystem::path& folder,
                     learner::Workload* workload, const StopSignal* stop);

  // Plans the next evaluation one interval after this point of the training.
  void ScheduleAfter(double seconds, int64_t num_frames) {
    schedule_.Advance(seconds, num_frames);
  }
  // Evaluates if the interval has passed; a signal to stop ends it.
  void RunIfDue(const learner::Progress& progress, int64_t num_frames);
  // Evaluates at the end of a run, unless the last evaluation was of this
  // step's policy; a second signal ends or skips it.
  void RunLast(const learner::Progress& progress, int64_t num_frames);

  // Whether an evaluation has reached evaluation.stop_at_return.
  bool is_good_enough() const { return is_good_enough_; }

 private:
  // Gives up at one signal more than `max_signals`.
  void Run(const learner::Progress& progress, int64_t num_frames,
           int max_signals);

  const evaluation::EvaluationConfig config_;
  learner::Workload& workload_;
  const StopSignal& stop_;
  evaluation::Evaluator evaluator_;
  evaluation::EvaluationLog log_;
  const int64_t action_repeat_;
  evaluation::BestPolicy best_;
  evaluation::EvaluationSchedule schedule_;
  bool is_good_enough_ = false;
};

}  // namespace replicant::programs
