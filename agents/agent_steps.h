#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace replicant::agents {

// Metadata key of published parameters and checkpoints: agent steps of all
// actors so far.
inline constexpr const char* kAgentStepsKey = "agent_steps";

// Returns the agent steps in `metadata`, or those under another key;
// std::nullopt if the key is absent. Throws InvalidArgument if the value is not
// a number >= 0.
std::optional<int64_t> AgentStepsIn(
    const std::map<std::string, std::string>& metadata,
    const char* key = kAgentStepsKey);

}  // namespace replicant::agents
