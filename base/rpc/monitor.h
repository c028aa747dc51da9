#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/rpc/socket.h"

namespace replicant::rpc {

// A change in a connection of a socket, as far as a client needs it.
struct ConnectionEvent {
  enum class Kind {
    kConnected,     // the handshake is done: messages flow
    kDisconnected,  // it was connected and no longer is
    // the handshake failed, and the library tries again; it may succeed then
    kHandshakeFailed,
    // the side that binds: a client left during the handshake, because its
    // process ended or because of its keys
    kAbandoned,
    // the handshake failed for a reason that trying again will not change:
    // the server refuses this key, or only one side has keys
    kRefused,
  };

  Kind kind;
  std::string text;  // the reason of a failure; empty otherwise
};

// A socket's side of its connections. A binding socket learns only about failed
// handshakes, except the ones that its ZapHandler logs.
enum class SocketSide { kConnects, kBinds };

// Reports the connections of one socket; tcp and ipc only, as inproc has no
// events.
//
// Thread-safety: as the socket's; it belongs to the same thread and must be
// destroyed before the socket.
class SocketMonitor {
 public:
  // Call it before the socket connects or binds. Throws CommError.
  SocketMonitor(ZmqContext& context, ZmqSocket& socket,
                SocketSide side = SocketSide::kConnects);
  ~SocketMonitor();
  SocketMonitor(const SocketMonitor&) = delete;
  SocketMonitor& operator=(const SocketMonitor&) = delete;

  // The next event, in order; std::nullopt if there is none now.
  std::optional<ConnectionEvent> Next();

  // Readable when Next() may have an event: for Poll().
  ZmqSocket& socket() { return events_; }

 private:
  ZmqSocket& watched_;
  const SocketSide side_;
  ZmqSocket events_;
};

// Counts failed handshakes and logs the 1st, 2nd, 4th, 8th ... of them: a peer
// with a wrong key retries forever.
//
// Thread-safety: one thread.
class HandshakeFailures {
 public:
  // `where` names the socket in the line, for example "connect ENDPOINT".
  void Note(const std::string& where, const std::string& text);

 private:
  uint64_t count_ = 0;
};

}  // namespace replicant::rpc
