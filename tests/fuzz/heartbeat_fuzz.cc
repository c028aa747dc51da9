// Heartbeats come from any process that can connect. Any bytes are refused with
// a MalformedMessage or encode to the same bytes again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "base/rpc/wire.h"
#include "fleet/protocol/heartbeat.h"

namespace {

// `read_and_write` reads a message and returns its bytes.
template <typename F>
void Check(const replicant::rpc::Message& payload, const F& read_and_write) {
  try {
    const replicant::rpc::Message written = read_and_write();
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
  using replicant::fleet::BeatReply;
  using replicant::fleet::Heartbeat;
  namespace rpc = replicant::rpc;
  Check(payload, [&] { return Heartbeat::Decode(payload).Encode(); });
  Check(payload, [&] {
    return rpc::EncodeMessage(rpc::DecodeMessage<BeatReply>(payload));
  });
  return 0;
}
