#include "replicator/comm/liveness_messages.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/rpc/wire.h"

namespace replicant::comm {
namespace {

constexpr std::string_view kTable = R"(liveness 1
1 beat
  request: u32 rank, state, string problem, bool is leaving
  reply: u8 order (0 go on, 1 over, 2 end), state, string verdict
state: u64 calls begun, string call
)";

// A reason contains the text of an arbitrary exception.
constexpr uint32_t kMaxReasonBytes = 1 << 16;
constexpr uint32_t kMaxCallBytes = 1 << 12;
constexpr uint32_t kMaxEndpoints = 256;

std::string_view Cut(const std::string& text, uint32_t max_bytes) {
  return std::string_view(text).substr(0, max_bytes);
}

void Write(rpc::WireWriter& writer, const RankState& state) {
  writer.Write(state.num_calls);
  writer.WriteString(Cut(state.call, kMaxCallBytes));
}

RankState ReadState(rpc::WireReader& reader) {
  RankState state;
  state.num_calls = reader.Read<uint64_t>("num_calls");
  state.call = reader.ReadString("call", kMaxCallBytes);
  return state;
}

rpc::Message OnePart(rpc::WireWriter& writer) {
  rpc::Message message;
  message.push_back(writer.Finish());
  return message;
}

}  // namespace

rpc::Protocol LivenessProtocol() {
  return rpc::Protocol::FromTable("liveness", 1, kTable);
}

rpc::Message LivenessBeat::Encode() const {
  rpc::WireWriter writer;
  writer.Write(rank);
  Write(writer, state);
  writer.WriteString(Cut(problem, kMaxReasonBytes));
  writer.WriteBool(is_leaving);
  return OnePart(writer);
}

LivenessBeat LivenessBeat::Decode(std::span<const rpc::Frame> payload) {
  rpc::WireReader reader("liveness.beat", payload);
  LivenessBeat beat;
  beat.rank = reader.Read<uint32_t>("rank");
  beat.state = ReadState(reader);
  beat.problem = reader.ReadString("problem", kMaxReasonBytes);
  beat.is_leaving = reader.ReadBool("is_leaving");
  reader.Finish();
  return beat;
}

rpc::Message LivenessAnswer::Encode() const {
  rpc::WireWriter writer;
  writer.Write(static_cast<uint8_t>(order));
  Write(writer, state);
  writer.WriteString(Cut(verdict, kMaxReasonBytes));
  return OnePart(writer);
}

LivenessAnswer LivenessAnswer::Decode(std::span<const rpc::Frame> payload) {
  constexpr std::string_view kWhat = "liveness.answer";
  rpc::WireReader reader(kWhat, payload);
  LivenessAnswer answer;
  const auto order = reader.Read<uint8_t>("order");
  if (order > static_cast<uint8_t>(Order::kEnd)) {
    throw rpc::MalformedMessage(
        fmt::format("{}: order {} is not known", kWhat, order));
  }
  answer.order = static_cast<Order>(order);
  answer.state = ReadState(reader);
  answer.verdict = reader.ReadString("verdict", kMaxReasonBytes);
  reader.Finish();
  return answer;
}

std::string LivenessAddress::Encode() const {
  rpc::WireWriter writer;
  writer.Write(static_cast<uint32_t>(endpoints.size()));
  for (const std::string& endpoint : endpoints) writer.WriteString(endpoint);
  writer.WriteString(server_public_key);
  writer.WriteString(client_keys.public_key);
  writer.WriteString(client_keys.secret_key);
  return {reinterpret_cast<const char*>(writer.bytes().data()), writer.size()};
}

LivenessAddress LivenessAddress::Decode(const std::string& text) {
  constexpr std::string_view kWhat = "liveness.address";
  rpc::WireReader reader(kWhat, std::as_bytes(std::span(text)));
  LivenessAddress address;
  const auto count = reader.Read<uint32_t>("endpoints");
  if (count > kMaxEndpoints) {
    throw rpc::MalformedMessage(fmt::format("{}: {} endpoints, at most {}",
                                            kWhat, count, kMaxEndpoints));
  }
  for (uint32_t i = 0; i < count; ++i) {
    address.endpoints.push_back(reader.ReadString("endpoint", kMaxCallBytes));
  }
  address.server_public_key = reader.ReadString("server key", kMaxCallBytes);
  address.client_keys.public_key = reader.ReadString("key", kMaxCallBytes);
  address.client_keys.secret_key = reader.ReadString("key", kMaxCallBytes);
  reader.Finish();
  return address;
}

}  // namespace replicant::comm
