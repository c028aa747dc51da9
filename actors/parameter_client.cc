#include "actors/parameter_client.h"

#include <charconv>

#include "core/runtime/parameters.h"

namespace replicant::actors {
namespace {

// 0 where there is no number.
int64_t AgentSteps(const SafetensorsMetadata& metadata) {
  const auto found = metadata.find(runtime::kAgentStepsKey);
  int64_t steps = 0;
  if (found != metadata.end()) {
    const std::string& text = found->second;
    std::from_chars(text.data(), text.data() + text.size(), steps);
  }
  return steps;
}

}  // namespace

ParameterClient::ParameterClient(const std::string& endpoint)
    : subscriber_(context_,
                  rpc::Protocol::FromTable(runtime::kParameterProtocol,
                                           runtime::kParameterVersion,
                                           runtime::kParameterTable)) {
  subscriber_.Connect(endpoint);
  subscriber_.Subscribe(runtime::kPolicyTopic);
}

std::optional<ParameterClient::Parameters> ParameterClient::Poll(
    Clock::Duration timeout) {
  if (subscriber_.Process(timeout) != rpc::ReceiveResult::kOk) {
    return std::nullopt;
  }
  const rpc::Publication* newest = subscriber_.Newest(runtime::kPolicyTopic);
  if (newest == nullptr || newest->payload.size() != 1) return std::nullopt;
  const std::span<const std::byte> bytes = newest->payload[0].bytes();
  const SafetensorsReader reader(bytes, "published parameters");
  return Parameters{newest->version, AgentSteps(reader.metadata()), bytes};
}

}  // namespace replicant::actors
