#pragma once

#include <cstdint>
#include <filesystem>

#include "actors/best_policy.h"
#include "actors/evaluation_config.h"
#include "actors/evaluation_log.h"
#include "actors/evaluator.h"
#include "env/task_registry.h"
#include "learner/learner.h"
#include "learner/workload.h"
#include "programs/run_config.h"

namespace replicant::programs {

// Evaluates a workload's policy every evaluation.interval_s seconds of training
// and writes the results to the evaluation log of the run
// (actors/evaluation_log.h).
//
// Thread-safety: one thread makes all calls, the workload's.
class PeriodicEvaluation {
 public:
  // `registry` and `workload` outlive this object. `folder` is the run's.
  PeriodicEvaluation(const RunConfig& config, const env::TaskRegistry& registry,
                     const std::filesystem::path& folder,
                     learner::Workload* workload);

  // Sets the time of the next evaluation to one interval after `seconds` of
  // training.
  void ScheduleAfter(double seconds);
  // Evaluates if the interval has passed.
  void RunIfDue(const learner::Progress& progress, int64_t num_frames);
  // Evaluates unless the policy of this step was evaluated last: for the end of
  // a run.
  void RunLast(const learner::Progress& progress, int64_t num_frames);

  // Whether an evaluation has reached evaluation.stop_at_return.
  bool is_good_enough() const { return is_good_enough_; }

 private:
  void Run(const learner::Progress& progress, int64_t num_frames);

  const actors::EvaluationConfig config_;
  learner::Workload& workload_;
  actors::Evaluator evaluator_;
  actors::EvaluationLog log_;
  const int64_t action_repeat_;
  actors::BestPolicy best_;
  double next_s_ = 0.0;  // of training
  int64_t last_step_ = -1;
  bool is_good_enough_ = false;
};

}  // namespace replicant::programs
