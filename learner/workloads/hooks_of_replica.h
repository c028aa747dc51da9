#pragma once

#include <cstdint>

#include "engine/nn/replica_hooks.h"
#include "replicator/replica_context.h"

namespace replicant::learner {

// Returns the hooks that run a model's update on the replicas of `replica`;
// `rows` is the number of rows of its batch. The hooks refer to `replica`,
// which must outlive the building of its step.
nn::ReplicaHooks HooksOf(replicator::ReplicaContext& replica, int64_t rows);

}  // namespace replicant::learner
