#include "programs/lockstep/periodic_evaluation.h"

#include <spdlog/spdlog.h>

#include <string>

#include "programs/run/find_checkpoint.h"

namespace replicant::programs {

PeriodicEvaluation::PeriodicEvaluation(const RunConfig& config,
                                       const env::TaskRegistry& registry,
                                       const std::filesystem::path& folder,
                                       learner::Workload* workload,
                                       const StopSignal* stop)
    : config_(config.evaluation),
      workload_(*workload),
      stop_(*stop),
      evaluator_(registry,
                 {.task = config.task,
                  .agent = config.MakeAgent(),
                  .evaluation = config.evaluation,
                  .backend = config.learner.replication.policy_backend()}),
      log_(folder, BeginningOfRun(folder)),
      action_repeat_(config.task.action_repeat),
      best_(folder),
      schedule_(config.evaluation) {}

void PeriodicEvaluation::RunIfDue(const learner::Progress& progress,
                                  int64_t num_frames) {
  if (!schedule_.IsDue(progress.seconds, num_frames)) return;
  ScheduleAfter(progress.seconds, num_frames);
  Run(progress, num_frames, /*max_signals=*/0);
}

void PeriodicEvaluation::RunLast(const learner::Progress& progress,
                                 int64_t num_frames) {
  if (log_.last_step() == progress.step) return;
  Run(progress, num_frames, /*max_signals=*/1);
}

void PeriodicEvaluation::Run(const learner::Progress& progress,
                             int64_t num_frames, int max_signals) {
  for (const std::string& name : workload_.PublishedVariables()) {
    evaluator_.policy().variables().Set(name,
                                        workload_.variables().Get(name).view());
  }
  const double seconds = log_.Now();
  const auto evaluation = evaluator_.Run(
      /*video=*/"", [&] { return stop_.count() > max_signals; });
  if (!evaluation) {
    spdlog::info("the evaluation of step {} is given up: a signal",
                 progress.step);
    return;
  }
  const evaluation::EvaluationRecord record = evaluation::MakeRecord(
      seconds, progress.step, num_frames, evaluation->result);
  log_.Write(record);
  best_.Offer(record, evaluator_.policy().variables(),
              num_frames / action_repeat_);
  spdlog::info(
      "{:.0f} s: {} updates, {} frames, {:.1f} updates/s, return {:.1f} +- "
      "{:.1f}",
      progress.seconds, progress.step, num_frames, progress.steps_per_s,
      record.mean, record.standard_deviation);
  if (config_.IsGoodEnough(record.mean)) {
    spdlog::info("the return reaches evaluation.stop_at_return");
    is_good_enough_ = true;
  }
}

}  // namespace replicant::programs
