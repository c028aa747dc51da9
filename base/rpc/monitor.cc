#include "base/rpc/monitor.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <bit>

#include "base/rpc/wire.h"
#include "base/rpc/zmq_call.h"

namespace replicant::rpc {
namespace {

// The side that binds has a ZapHandler, which names a refused client and its
// address.
constexpr int kBindEvents =
    ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
constexpr int kConnectEvents = kBindEvents | ZMQ_EVENT_HANDSHAKE_SUCCEEDED |
                               ZMQ_EVENT_DISCONNECTED |
                               ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

// Why a handshake failed, worded for the side that reads it. The library does
// not tell the binding side who the peer is.
ConnectionEvent ToFailure(uint16_t event, uint32_t value, SocketSide side) {
  using Kind = ConnectionEvent::Kind;
  const bool connects = side == SocketSide::kConnects;
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH) {
    return {Kind::kRefused,
            fmt::format("the peer refused this side's CURVE key (status {}); "
                        "hint: is the key in its list of allowed keys?",
                        value)};
  }
  if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL) {
    switch (value) {
      case ZMQ_PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
        return {Kind::kRefused,
                "only one of the two sides has CURVE keys; hint: give both "
                "sides keys, or none"};
      case ZMQ_PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
        return {Kind::kHandshakeFailed,
                connects ? "the peer's CURVE key is not the expected one; "
                           "hint: is its public key right?"
                         : "a client expects a different CURVE key from this "
                           "side; hint: does it have the key of another run?"};
      default:
        return {Kind::kHandshakeFailed,
                fmt::format("the handshake broke the protocol (code {:#x}); "
                            "hint: is the peer's public key right?",
                            value)};
    }
  }
  if (connects) {
    return {Kind::kHandshakeFailed,
            "the peer ended the connection during the handshake; hint: is its "
            "public key right, and does this side have keys if the peer does?"};
  }
  return {Kind::kAbandoned,
          "a client ended the connection during the handshake, or sent "
          "nothing; hint: does it have the keys of this side?"};
}

std::optional<ConnectionEvent> ToConnectionEvent(uint16_t event, uint32_t value,
                                                 SocketSide side) {
  using Kind = ConnectionEvent::Kind;
  switch (event) {
    case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
      return ConnectionEvent{Kind::kConnected, ""};
    case ZMQ_EVENT_DISCONNECTED:
      return ConnectionEvent{Kind::kDisconnected, ""};
    case ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL:
    case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH:
    case ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL:
      return ToFailure(event, value, side);
    default:
      return std::nullopt;
  }
}

}  // namespace

SocketMonitor::SocketMonitor(ZmqContext& context, ZmqSocket& socket,
                             SocketSide side)
    : watched_(socket), side_(side), events_(context, SocketType::kPair) {
  const std::string endpoint =
      fmt::format("inproc://replicant.monitor.{}", context.num_monitors_++);
  ZMQ_CALL(zmq_socket_monitor(
      watched_.handle_, endpoint.c_str(),
      side == SocketSide::kConnects ? kConnectEvents : kBindEvents));
  events_.Connect(endpoint);
}

SocketMonitor::~SocketMonitor() {
  zmq_socket_monitor(watched_.handle_, nullptr, 0);
}

std::optional<ConnectionEvent> SocketMonitor::Next() {
  Message message;
  while (events_.Receive(&message, Clock::Duration(0)) == ReceiveResult::kOk) {
    // u16 event, u32 value; the endpoint follows in a separate part
    WireReader reader("socket event", message[0].bytes());
    const auto event = reader.Read<uint16_t>("event");
    const auto value = reader.Read<uint32_t>("value");
    auto result = ToConnectionEvent(event, value, side_);
    if (result) return result;
  }
  return std::nullopt;
}

void HandshakeFailures::Note(const std::string& where,
                             const std::string& text) {
  if (!std::has_single_bit(++count_)) return;
  spdlog::warn("{}: {} ({} failed handshakes so far)", where, text, count_);
}

}  // namespace replicant::rpc
