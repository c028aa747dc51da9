#pragma once

namespace replicant::graph {

// Multiplies the learning rates of the optimizers (engine/nn) that this thread
// adds to a graph during its lifetime: for replicas whose batches differ from
// their configuration (learner::LearnerOfProcesses()).
//
// Thread-safety: one thread, and no two scopes of it at a time (checked).
class LearningRateScale {
 public:
  explicit LearningRateScale(double scale);
  ~LearningRateScale();
  LearningRateScale(const LearningRateScale&) = delete;
  LearningRateScale& operator=(const LearningRateScale&) = delete;

  // 1 outside of any scope.
  static double InForce();
};

}  // namespace replicant::graph
