#include "actors/parameter_client.h"

#include <utility>

#include "agents/agent_steps.h"
#include "agents/policy_topic.h"
#include "engine/runtime/parameters.h"

namespace replicant::actors {
namespace {

rpc::SubscriberOptions WithKey(const rpc::GroupKey& key) {
  rpc::SubscriberOptions options;
  options.socket.curve = key.client_role();
  return options;
}

}  // namespace

ParameterClient::ParameterClient(const std::string& endpoint,
                                 const rpc::GroupKey& key)
    : subscriber_(context_,
                  rpc::Protocol::FromTable(runtime::kParameterProtocol,
                                           runtime::kParameterVersion,
                                           runtime::kParameterTable),
                  WithKey(key)) {
  subscriber_.Connect(endpoint);
  subscriber_.Subscribe(agents::kPolicyTopic);
}

std::optional<ParameterClient::Parameters> ParameterClient::Poll(
    Clock::Duration timeout) {
  Receive(has_new_ ? Clock::Duration(0) : timeout);
  if (!std::exchange(has_new_, false)) return std::nullopt;
  const rpc::Publication* newest = subscriber_.Newest(agents::kPolicyTopic);
  if (newest == nullptr || newest->payload.size() != 1) return std::nullopt;
  const std::span<const std::byte> bytes = newest->payload[0].bytes();
  const SafetensorsReader reader(bytes, "published parameters");
  return Parameters{newest->version,
                    agents::AgentStepsIn(reader.metadata()).value_or(0), bytes};
}

void ParameterClient::Receive(Clock::Duration timeout) {
  has_new_ |= subscriber_.Process(timeout) == rpc::ReceiveResult::kOk;
}

}  // namespace replicant::actors
