#include "actors/parameter_client.h"

#include "core/runtime/parameters.h"

namespace replicant::actors {
namespace {

constexpr const char* kTopic = "policy";

}  // namespace

ParameterClient::ParameterClient(const std::string& endpoint)
    : subscriber_(context_, rpc::Protocol::FromTable(
                                "parameters", 1, runtime::kParameterTable)) {
  subscriber_.Connect(endpoint);
  subscriber_.Subscribe(kTopic);
}

std::optional<ParameterClient::Parameters> ParameterClient::Poll(
    Clock::Duration timeout) {
  if (subscriber_.Process(timeout) != rpc::ReceiveResult::kOk) {
    return std::nullopt;
  }
  const rpc::Publication* newest = subscriber_.Newest(kTopic);
  if (newest == nullptr || newest->payload.size() != 1) return std::nullopt;
  return Parameters{newest->version, newest->payload[0].bytes()};
}

}  // namespace replicant::actors
