#include "core/rpc/monitor.h"

#include <fmt/format.h>

#include <string_view>

#include "core/rpc/wire.h"
#include "core/rpc/zmq_call.h"

namespace replicant::rpc {
namespace {

constexpr int kEvents = ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED |
                        ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                        ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

std::optional<ConnectionEvent> ToConnectionEvent(uint16_t event,
                                                 uint32_t value) {
  using Kind = ConnectionEvent::Kind;
  switch (event) {
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      return ConnectionEvent{Kind::kConnected, ""};
    case ZMQ_EVENT_DISCONNECTED:
      return ConnectionEvent{Kind::kDisconnected, ""};
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
      return ConnectionEvent{
          Kind::kHandshakeFailed,
          "the peer ended the connection during the handshake; hint: is its "
          "public key right, and has this side keys if the peer has?"};
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
      return ConnectionEvent{
          Kind::kRefused,
          fmt::format("the peer refused this side's CURVE key (status {}); "
                      "hint: is the key in its list of allowed keys?",
                      value)};
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      if (value == ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH) {
        return ConnectionEvent{Kind::kRefused,
                               "only one of the two sides has CURVE keys; "
                               "hint: give both sides keys, or none"};
      }
      return ConnectionEvent{
          Kind::kHandshakeFailed,
          fmt::format("the handshake broke the protocol (code {:#x}); hint: "
                      "is the peer's public key right?",
                      value)};
    default:
      return std::nullopt;
  }
}

}  // namespace

SocketMonitor::SocketMonitor(ZmqContext& context, ZmqSocket& socket)
    : watched_(socket), events_(context, SocketType::kPair) {
  const std::string endpoint =
      fmt::format("inproc://replicant.monitor.{}", context.num_monitors_++);
  ZMQ_CALL(zmq_socket_monitor(watched_.handle_, endpoint.c_str(), kEvents));
  events_.Connect(endpoint);
}

SocketMonitor::~SocketMonitor() {
  zmq_socket_monitor(watched_.handle_, nullptr, 0);
}

std::optional<ConnectionEvent> SocketMonitor::Next() {
  Message message;
  while (events_.Receive(&message, Clock::Duration(0)) == ReceiveResult::kOk) {
    // u16 event, u32 value; the endpoint follows in a part of its own
    WireReader reader("socket event", message[0].bytes());
    const auto event = reader.Read<uint16_t>("event");
    const auto value = reader.Read<uint32_t>("value");
    auto result = ToConnectionEvent(event, value);
    if (result) return result;
  }
  return std::nullopt;
}

}  // namespace replicant::rpc
