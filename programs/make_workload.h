#pragma once

#include <memory>

#include "agents/task_spec.h"
#include "core/replicator/replicator.h"
#include "learner/workload.h"
#include "programs/program.h"
#include "replay/client/batch_source.h"

namespace replicant::programs {

// Returns the task of a run with actors. Throws ConfigError if the learner
// cannot draw from the replay.
agents::TaskSpec TaskOf(const Invocation& invocation);

// Makes one replica in this process, to use the model of a run whatever
// strategy trains it.
std::unique_ptr<replicator::Replicator> MakeOneReplica(const RunConfig& config);

// Makes the workload that the configuration names. `source` is null unless this
// process draws batches for an agent; `reads_images` is false if it will only
// use the variables. Throws ConfigError, and what the workload throws.
std::unique_ptr<learner::Workload> MakeWorkload(
    const Invocation& invocation,
    std::unique_ptr<replicator::Replicator> replicator,
    replay::BatchSource* source, bool reads_images = true);

}  // namespace replicant::programs
