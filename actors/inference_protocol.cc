#include "actors/inference_protocol.h"

#include <utility>

namespace replicant::actors {
namespace {

constexpr const char* kMessageTable = R"(inference 2
1 describe
  request: no part
  reply: u64 observation_bytes, u64 state_size, u64 action_size,
    bool has_parameters, u64 version, i64 agent_steps
2 act
  request part 0: array of f32 noise_scale, array of f32 state, the states of
    all observations
  request part 1: as many observations, without gaps
  reply: u64 version, i64 agent_steps, array of f32 action
)";

}  // namespace

const rpc::Protocol& InferenceProtocol() {
  static const auto protocol =
      rpc::Protocol::FromTable("inference", 2, kMessageTable);
  return protocol;
}

rpc::Message ActRequest::Encode() const {
  rpc::Message message = rpc::EncodeMessage(*this);
  message.push_back(rpc::Frame::Copy(observations));
  return message;
}
ActRequest ActRequest::Decode(std::span<const rpc::Frame> payload) {
  rpc::CheckNumParts(kName, payload, 2);
  auto request = rpc::DecodePart<ActRequest>(payload[0].bytes());
  request.observations = payload[1].bytes();
  return request;
}

}  // namespace replicant::actors
