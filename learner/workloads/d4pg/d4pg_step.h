#pragma once

#include <string>
#include <vector>

#include "agents/d4pg/config.h"
#include "agents/d4pg/distribution.h"
#include "agents/d4pg/networks.h"
#include "core/replicator/replicator.h"

namespace replicant::learner {

// The whole update of D4PG (agents/d4pg/update.h) as a step of one replica, on
// its rows of the batch: inputs "observation", "action", "reward", "discount",
// "next_observation" and "importance_weight". Any number of replicas learns
// what one would learn from all rows.
//
// Values: "critic_loss" and "policy_loss", [], of all rows; "priority" and
// "value", [global batch], by global row.
replicator::StepOutputs BuildD4pgStep(replicator::ReplicaContext& replica,
                                      const replicator::Inputs& inputs,
                                      const agents::d4pg::D4pgConfig& config,
                                      const agents::d4pg::AgentSpec& spec,
                                      const agents::d4pg::Support& support);

// Makes the targets equal to what they follow: where a training begins.
void CopyToTargets(const agents::d4pg::D4pgConfig& config,
                   const agents::d4pg::AgentSpec& spec, int64_t num_atoms,
                   uint64_t seed, runtime::VariableStore& variables);

}  // namespace replicant::learner
