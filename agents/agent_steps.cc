#include "agents/agent_steps.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

#include "base/error.h"

namespace replicant::agents {

std::optional<int64_t> AgentStepsIn(
    const std::map<std::string, std::string>& metadata, const char* key) {
  const auto found = metadata.find(key);
  if (found == metadata.end()) return std::nullopt;
  const std::string& text = found->second;
  const char* const end = text.data() + text.size();
  int64_t steps = 0;
  const auto [parsed, error] = std::from_chars(text.data(), end, steps);
  if (error != std::errc() || parsed != end || steps < 0) {
    throw InvalidArgument(
        fmt::format("metadata {}: '{}'; want a number >= 0", key, text));
  }
  return steps;
}

}  // namespace replicant::agents
