#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "learner/learner.h"
#include "programs/run/invocation.h"
#include "programs/run/run_config.h"

// The output of a learner: its log lines, and the start and end of a learner
// that no fleet has started.
namespace replicant::programs {

using Scalars = std::vector<std::pair<std::string, double>>;

// Returns the line of a report: "step 6: 2.5 steps/s; loss 6.91, accuracy 0".
// It shows the losses and accuracies among `scalars`, the values of the last
// step, and in a run with actors also waits and frames.
std::string ProgressText(const RunConfig& config,
                         const learner::Progress& progress,
                         const Scalars& scalars);

// Makes and locks the run's folder: while the lock is held, no fleet and no
// other learner writes there. Throws IoError.
FileLock LockAlone(const Invocation& invocation);

// Prints the run's folder and writes its config.yaml. Throws IoError.
void BeginAlone(const Invocation& invocation);

// Prints the result of the run as a table: `first_step` is the step at which
// the learner began, `seconds` the time since then. Throws IoError if the run's
// folder cannot be read.
void SummarizeAlone(const Invocation& invocation, learner::EndReason reason,
                    int64_t first_step, const learner::Progress& last,
                    const Scalars& scalars, double seconds);

}  // namespace replicant::programs
