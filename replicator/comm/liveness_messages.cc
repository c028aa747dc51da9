#include "replicator/comm/liveness_messages.h"

namespace replicant::comm {
namespace {

constexpr std::string_view kTable = R"(liveness 1
1 beat
  request: u32 rank, state, string problem, bool is leaving
  reply: u8 order (0 go on, 1 over, 2 end), state, string verdict
state: u64 calls begun, string call
)";

}  // namespace

rpc::Protocol LivenessProtocol() {
  return rpc::Protocol::FromTable("liveness", 1, kTable);
}

std::string LivenessAddress::Encode() const {
  const rpc::Frame frame = rpc::EncodePart(*this);
  return {reinterpret_cast<const char*>(frame.bytes().data()),
          frame.bytes().size()};
}
LivenessAddress LivenessAddress::Decode(const std::string& text) {
  return rpc::DecodePart<LivenessAddress>(std::as_bytes(std::span(text)));
}

}  // namespace replicant::comm
