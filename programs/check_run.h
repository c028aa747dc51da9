#pragma once

#include "agents/task_spec.h"
#include "programs/run_config.h"

namespace replicant::programs {

// Whether the run has actors, a replay and a policy to evaluate; what learns
// from images has none of them.
bool HasActors(const RunConfig& config);

// Of a run with actors: finds what would stop the roles of a run a second after
// their start, and returns what the task looks like. Throws ConfigError, and
// what making the environment throws.
agents::TaskSpec CheckRun(const RunConfig& config);

// Throws ConfigError if one of the run's addresses cannot be listened at: it is
// in use, or not of this host.
void CheckAddresses(const RunConfig& config);

// Throws ConfigError if the fleet would take a learner of several processes for
// dead before these could say which of them stands still.
void CheckHeartbeats(const RunConfig& config);

}  // namespace replicant::programs
