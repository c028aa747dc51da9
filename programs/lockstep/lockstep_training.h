#pragma once

#include <string>

#include "env/task_registry.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

// Trains an agent with actor, replay, learner and evaluation in this thread, in
// an order that depends on the configuration alone: the same seed gives the
// same run. Resumes from the newest checkpoint in the run's folder whose parts
// can all be read, as if the run had not been stopped. Returns at one of the
// learner's limits, at a signal to stop, or once the return reaches
// evaluation.stop_at_return.
//
// `resolved_yaml` is written to the folder as config.yaml. Throws Error if the
// configuration cannot be run or no checkpoint can be read.
void TrainInLockstep(const RunConfig& config, const env::TaskRegistry& tasks,
                     const std::string& resolved_yaml);

}  // namespace replicant::programs
