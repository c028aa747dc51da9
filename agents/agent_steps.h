#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace replicant::agents {

// The agent steps of all actors so far, as they stand in the metadata of
// published parameters and of checkpoints.
inline constexpr const char* kAgentStepsKey = "agent_steps";

// std::nullopt if `metadata` does not say. Throws InvalidArgument if it says
// something other than a number >= 0.
std::optional<int64_t> AgentStepsIn(
    const std::map<std::string, std::string>& metadata);

}  // namespace replicant::agents
