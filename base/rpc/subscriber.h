#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/rpc/envelope.h"
#include "base/rpc/monitor.h"
#include "base/rpc/socket.h"

namespace replicant::rpc {

struct SubscriberOptions {
  // A small queue: only the newest value matters.
  SocketOptions socket = {.receive_queue_messages = 4};
  EnvelopeLimits limits = {};
  Clock* clock = &Clock::Real();
};

// The newest value of a topic.
struct Publication {
  uint64_t version = 0;   // as given to Publish()
  uint64_t sequence = 0;  // 1, 2, ... in one session
  uint64_t session_id = 0;
  int64_t published_unix_nanos = 0;  // the publisher's wall clock
  Clock::TimePoint received_at;      // this side's clock
  Message payload;
};

// Counts since the subscriber was made.
struct SubscriberMetrics {
  uint64_t received = 0;    // newer values taken
  uint64_t missed = 0;      // values that never came, by their sequence numbers
  uint64_t duplicates = 0;  // not newer than what was there; dropped
  uint64_t malformed = 0;   // wrong form, checksum or message table
  uint64_t session_changes = 0;  // restarts of the publisher
};

// Keeps the newest value of each topic it subscribed to, from one Publisher.
// Reconnects and subscribes again automatically (not for inproc).
//
// Thread-safety: as ZmqSocket, one thread.
class Subscriber {
 public:
  Subscriber(ZmqContext& context, Protocol protocol,
             SubscriberOptions options = {});

  // Once. As ZmqSocket::Connect().
  void Connect(const std::string& endpoint);
  void Subscribe(std::string_view topic);

  // Takes the messages that have come and waits up to `timeout` for a newer
  // value. Returns kOk if some topic has a newer value than before the call.
  // May return early after hundreds of messages without one. Throws CommError
  // if the publisher refuses this side's key, since waiting cannot help; other
  // failed handshakes are logged.
  ReceiveResult Process(Clock::Duration timeout);

  // nullptr if nothing has come yet. Valid until the next Process(). Its
  // payload may be moved out.
  Publication* Newest(std::string_view topic);

  void DetachFromThread() {
    socket_.DetachFromThread();
    monitor_.socket().DetachFromThread();
  }
  const SubscriberMetrics& metrics() const { return metrics_; }

 private:
  // Whether the message was a newer value.
  bool HandleMessage(Message message);
  bool IsNewer(const Publication& value, const Publication& old);
  void HandleConnectionEvents();

  const Protocol protocol_;
  const SubscriberOptions options_;
  ZmqSocket socket_;
  SocketMonitor monitor_;
  HandshakeFailures handshake_failures_;
  std::string endpoint_;
  std::map<std::string, Publication, std::less<>> newest_;  // by topic
  SubscriberMetrics metrics_;
};

}  // namespace replicant::rpc
