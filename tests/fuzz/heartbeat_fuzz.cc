// Heartbeats come from any process that can connect. Any bytes are refused with
// a MalformedMessage or encode to the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/rpc/wire.h"
#include "fleet/protocol/heartbeat.h"

namespace {

template <typename Body>
void ReadAndWrite(const replicant::rpc::Message& payload) {
  try {
    const Body body = Body::Decode(payload);
    const replicant::rpc::Message written = body.Encode();
    if (written.size() != 1 || written[0].text() != payload[0].text()) {
      std::abort();
    }
  } catch (const replicant::rpc::MalformedMessage&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  replicant::rpc::Message payload;
  payload.push_back(
      replicant::rpc::Frame::Copy(std::as_bytes(std::span(data, size))));
  ReadAndWrite<replicant::fleet::Heartbeat>(payload);
  ReadAndWrite<replicant::fleet::BeatReply>(payload);
  return 0;
}
