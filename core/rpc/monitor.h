#pragma once

#include <optional>
#include <string>

#include "core/rpc/socket.h"

namespace replicant::rpc {

// A change in a connection of a socket, as far as a client needs it.
struct ConnectionEvent {
  enum class Kind {
    kConnected,     // the handshake is done: messages flow
    kDisconnected,  // it was connected and no longer is
    // the handshake failed, and the library tries again; it may succeed then
    kHandshakeFailed,
    // the handshake failed for a reason that trying again will not change:
    // the server refuses this key, or only one side has keys
    kRefused,
  };

  Kind kind;
  std::string text;  // the reason of a failure; empty otherwise
};

// Reports the connections of one socket; tcp and ipc only, as inproc has no
// events.
//
// Thread-safety: as the socket's; it belongs to the same thread and must be
// destroyed before it.
class SocketMonitor {
 public:
  // Call it before the socket connects or binds. Throws CommError.
  SocketMonitor(ZmqContext& context, ZmqSocket& socket);
  ~SocketMonitor();
  SocketMonitor(const SocketMonitor&) = delete;
  SocketMonitor& operator=(const SocketMonitor&) = delete;

  // The next event, in order; std::nullopt if there is none now.
  std::optional<ConnectionEvent> Next();

  // Readable when Next() may have an event: for Poll().
  ZmqSocket& socket() { return events_; }

 private:
  ZmqSocket& watched_;
  ZmqSocket events_;
};

}  // namespace replicant::rpc
