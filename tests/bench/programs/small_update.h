#pragma once

#include "tests/learner/workloads/resident_training.h"
#include "tools/probe/d4pg_step.h"

namespace replicant::learner {

// D4PG from stacks of three small images.
inline probe::d4pg::StepGraphConfig SmallUpdate() {
  probe::d4pg::StepGraphConfig config;
  config.agent = StoredCase().agent();
  config.observation = {10, 10, 9};
  config.action_size = 2;
  config.batch_size = kStoredBatch;
  config.discount = 0.9;
  return config;
}
inline constexpr int64_t kSmallFrames = 300;

}  // namespace replicant::learner
