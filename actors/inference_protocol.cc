#include "actors/inference_protocol.h"

#include <fmt/format.h>

#include "base/rpc/wire.h"

namespace replicant::actors {
namespace {

using rpc::Frame;
using rpc::MalformedMessage;
using rpc::Message;
using rpc::WireReader;
using rpc::WireWriter;

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

constexpr uint32_t kMaxStateElements = kMaxInferenceRows * 4096;
constexpr uint32_t kMaxActionElements = kMaxInferenceRows * 256;

}  // namespace

std::string_view InferenceMessageTable() { return kMessageTable; }

const rpc::Protocol& InferenceProtocol() {
  static const auto protocol =
      rpc::Protocol::FromTable("inference", 2, kMessageTable);
  return protocol;
}

Message InferenceInfo::Encode() const {
  WireWriter writer;
  writer.Write(observation_bytes);
  writer.Write(state_size);
  writer.Write(action_size);
  writer.WriteBool(has_parameters);
  writer.Write(version);
  writer.Write(agent_steps);
  return rpc::MakeMessage(writer.Finish());
}

InferenceInfo InferenceInfo::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kMessage = "inference.describe reply";
  WireReader reader(kMessage, payload);
  InferenceInfo info;
  info.observation_bytes = reader.Read<uint64_t>("observation_bytes");
  info.state_size = reader.Read<uint64_t>("state_size");
  info.action_size = reader.Read<uint64_t>("action_size");
  info.has_parameters = reader.ReadBool("has_parameters");
  info.version = reader.Read<uint64_t>("version");
  info.agent_steps = reader.Read<int64_t>("agent_steps");
  reader.Finish();
  return info;
}

Message ActRequest::Encode() const {
  WireWriter writer;
  writer.WriteArray<float>(noise_scales);
  writer.WriteArray<float>(states);
  Message message;
  message.push_back(writer.Finish());
  message.push_back(Frame::Copy(observations));
  return message;
}

ActRequest ActRequest::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kMessage = "inference.act";
  rpc::CheckNumParts(kMessage, payload, 2);
  WireReader reader(kMessage, payload[0].bytes());
  ActRequest request;
  request.noise_scales =
      reader.ReadArray<float>("noise_scale", kMaxInferenceRows);
  request.states = reader.ReadArray<float>("state", kMaxStateElements);
  reader.Finish();
  if (request.noise_scales.empty()) {
    throw MalformedMessage(fmt::format("{}: no rows", kMessage));
  }
  request.observations = payload[1].bytes();
  return request;
}

Message ActReply::Encode() const {
  WireWriter writer;
  writer.Write(version);
  writer.Write(agent_steps);
  writer.WriteArray<float>(actions);
  return rpc::MakeMessage(writer.Finish());
}

ActReply ActReply::Decode(std::span<const Frame> payload) {
  constexpr std::string_view kMessage = "inference.act reply";
  WireReader reader(kMessage, payload);
  ActReply reply;
  reply.version = reader.Read<uint64_t>("version");
  reply.agent_steps = reader.Read<int64_t>("agent_steps");
  reply.actions = reader.ReadArray<float>("action", kMaxActionElements);
  reader.Finish();
  return reply;
}

}  // namespace replicant::actors
