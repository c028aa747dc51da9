#pragma once

#include <memory>

#include "agents/task_spec.h"
#include "learner/workload.h"
#include "programs/run/invocation.h"
#include "replay/client/batch_source.h"
#include "replicator/replicator.h"

namespace replicant::programs {

// Returns the task of a run with actors. Throws ConfigError if the learner
// cannot draw from the replay.
agents::TaskSpec TaskOf(const Invocation& invocation);

// Makes the configured workload. `source` is null unless this process draws
// batches for an agent; `reads_images` is false if only the variables will be
// used. Throws ConfigError, and what the workload throws.
std::unique_ptr<learner::Workload> MakeWorkload(
    const Invocation& invocation,
    std::unique_ptr<replicator::Replicator> replicator,
    replay::BatchSource* source, bool reads_images = true);

// Makes the configured workload for its variables and its BuildModel() alone,
// which any strategy and backend share: it compiles no step and reads no
// images. `task` is TaskOf() for a run with actors. Throws as MakeWorkload()
// does.
std::unique_ptr<learner::Workload> MakeModel(const Invocation& invocation,
                                             const agents::TaskSpec& task);

}  // namespace replicant::programs
