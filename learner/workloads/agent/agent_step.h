#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "engine/runtime/variable_store.h"
#include "replicator/replicator.h"

namespace replicant::learner {

// An agent's step, with the names of its outputs.
struct AgentStep {
  replicator::StepOutputs outputs;
  std::vector<std::string> losses;
  std::vector<std::string> scalars;
  std::vector<std::string> values;
};

// Builds an agent's whole update as a step of one replica, on its rows of the
// batch (agents::TransitionTensors). Any number of replicas computes the update
// of one replica with all rows.
//
// Values: the agent's losses and scalars, [], over all rows; "priority" and the
// agent's values, [global batch], by global row.
AgentStep BuildAgentStep(replicator::ReplicaContext& replica,
                         const replicator::Inputs& inputs,
                         const agents::Agent& agent,
                         const agents::LearningSpec& spec);

// Runs the agent's start (agents::Agent::BuildStart) on `variables`.
void RunAgentStart(const agents::Agent& agent, const agents::LearningSpec& spec,
                   uint64_t seed, runtime::VariableStore& variables);

}  // namespace replicant::learner
