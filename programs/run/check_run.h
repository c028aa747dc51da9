#pragma once

#include "agents/task_spec.h"
#include "env/task_registry.h"
#include "programs/run/run_config.h"

namespace replicant::programs {

// Throws ConfigError for a section `replay` that works alone, but not with the
// learner and the actors of a run: several tables, or a table that cannot hold
// a batch.
void CheckReplay(const replay::ReplayConfig& config, int64_t batch_size);

// Checks a run with actors before its roles start: CheckReplay(), and the
// environment, which it makes, and resets if it is no MuJoCo simulation.
// Returns the task's specification for the agent. Throws ConfigError, and what
// making the environment throws.
agents::TaskSpec CheckRun(const RunConfig& config,
                          const env::TaskRegistry& tasks);

// Throws ConfigError if the run cannot listen at one of its addresses: the
// address is in use, not one of this host, or given twice. Free ports are
// chosen later (AnnounceAddresses()).
void CheckAddresses(RunConfig config);

// Throws ConfigError if other hosts could not join the run: no keys, no actors,
// or an address that they cannot reach.
void CheckCluster(RunConfig config);

// Throws ConfigError if a configured key file cannot be read, or if the replay
// has its own key and the run has no key.
void CheckKeys(const RunConfig& config);

// Throws ConfigError if the fleet would kill a silent learner of several
// processes before the learner could name the stalled process.
void CheckHeartbeats(const RunConfig& config);

// Throws ConfigError if the learner's backend cannot run here.
void CheckBackend(const RunConfig& config);

}  // namespace replicant::programs
