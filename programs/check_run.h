#pragma once

#include "agents/task_spec.h"
#include "env/task_registry.h"
#include "programs/run_config.h"

namespace replicant::programs {

// Throws ConfigError for a section `replay` that works alone, but not with the
// learner and the actors of a run: with several tables, or with a table that
// cannot hold a batch.
void CheckReplay(const replay::ReplayConfig& config, int64_t batch_size);

// Checks a run with actors before its roles start: CheckReplay(), and its
// environment, which it makes. Returns how the task looks to an agent. Throws
// ConfigError, and what making the environment throws.
agents::TaskSpec CheckRun(const RunConfig& config,
                          const env::TaskRegistry& tasks);

// Throws ConfigError if the run cannot listen at one of its addresses: the
// address is in use, not one of this host, or given twice. Free ports are
// chosen later (AnnounceAddresses()).
void CheckAddresses(RunConfig config);

// Throws ConfigError if other hosts could not take part in the run: without
// keys or actors, or with an address that they do not reach.
void CheckCluster(RunConfig config);

// Throws ConfigError if a file of keys that the configuration names cannot be
// read, or if the replay has a key of its own and the run none.
void CheckKeys(const RunConfig& config);

// Throws ConfigError if the fleet would kill a silent learner of several
// processes before they could name the one that stands still.
void CheckHeartbeats(const RunConfig& config);

// Throws ConfigError if the learner's backend cannot run here.
void CheckBackend(const RunConfig& config);

}  // namespace replicant::programs
