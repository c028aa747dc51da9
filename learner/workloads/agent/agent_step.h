#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "agents/transition_batch.h"
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
// With `frames` the observations are slots of that table, gathered within the
// step: inputs of ObservationSlots(). The plan's input kFrameTable is then the
// table.
//
// Values: the agent's losses and scalars, [], over all rows; "priority" and the
// agent's values, [global batch], by global row.
AgentStep BuildAgentStep(replicator::ReplicaContext& replica,
                         const replicator::Inputs& inputs,
                         const agents::Agent& agent,
                         const agents::LearningSpec& spec,
                         const graph::TensorType* frames = nullptr);
inline constexpr const char* kFrameTable = "frame_table";

// The tensors of agents::TransitionTensors() with slots of a table of frames,
// [..., frame_stack] i32, in the place of pixels.
std::vector<agents::TransitionTensor> ObservationSlots(
    const agents::LearningSpec& spec, int64_t rows);

// Runs the agent's start (agents::Agent::BuildStart) on `variables`.
void RunAgentStart(const agents::Agent& agent, const agents::LearningSpec& spec,
                   uint64_t seed, runtime::VariableStore& variables);

}  // namespace replicant::learner
