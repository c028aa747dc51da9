#pragma once

#include "agents/task_spec.h"
#include "training/training_config.h"

namespace replicant::training {

// Whether the run has actors, a replay and a policy to evaluate; what learns
// from images has none of them.
bool HasActors(const TrainingConfig& config);

// Of a run with actors: finds what would stop the roles of a run a second after
// their start, and returns what the task looks like. Throws ConfigError, and
// what making the environment throws.
agents::TaskSpec CheckTraining(const TrainingConfig& config);

// Throws ConfigError if one of the run's addresses cannot be listened at: it is
// in use, or not of this host.
void CheckAddresses(const TrainingConfig& config);

// Throws ConfigError if the fleet would take a learner of several processes for
// dead before these could say which of them stands still.
void CheckHeartbeats(const TrainingConfig& config);

}  // namespace replicant::training
