#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/rpc/envelope.h"
#include "base/rpc/monitor.h"
#include "base/rpc/socket.h"

namespace replicant::rpc {

struct PublisherOptions {
  // A small queue: values that a slow subscriber does not fetch are dropped for
  // it.
  SocketOptions socket = {.send_queue_messages = 4};
  // Names this run of the publisher; 0 draws a random one.
  uint64_t session_id = 0;
  Clock* clock = &Clock::Real();
};

// Sends every subscriber the newest value of each topic: once when it
// subscribes, then every newer value.
//
// A value's payload is kept, without a copy, until the next one of its topic.
// Each message carries a sequence number (1, 2, ... per topic and session) and
// a CRC-32C of its payload; docs/rpc.md has its form. ZeroMQ cannot send to one
// subscriber alone, so a subscription resends the topic's value to all of them;
// the others drop the duplicate.
//
// Thread-safety: as ZmqSocket, one thread.
class Publisher {
 public:
  static constexpr size_t kMaxTopicBytes = 255;

  Publisher(ZmqContext& context, Protocol protocol,
            PublisherOptions options = {});

  // As ZmqSocket::Bind().
  std::string Bind(const std::string& endpoint) {
    return socket_.Bind(endpoint);
  }

  // Sends a value; never waits. `version` travels with it to the subscribers,
  // for example the learner's step. Throws InvalidArgument for a topic that is
  // empty, too long or holds a zero byte, and what CheckPayload() throws.
  void Publish(std::string_view topic, uint64_t version, Message payload);
  // Throws InvalidArgument for a payload that with one part of 16 bytes more is
  // over EnvelopeLimits, or with a part of more than
  // options.socket.max_part_bytes. Any thread.
  void CheckPayload(std::string_view topic, const Message& payload) const;

  // Answers new subscriptions and logs failed handshakes. Call it often.
  // Returns kOk once it has answered one, at the latest after `timeout`.
  ReceiveResult Process(Clock::Duration timeout);

  void DetachFromThread() {
    socket_.DetachFromThread();
    monitor_.socket().DetachFromThread();
  }
  uint64_t session_id() const { return options_.session_id; }

 private:
  struct Value {
    uint64_t sequence = 0;
    Message message;  // topic, envelope, payload
  };

  void Send(Value& value);

  const Protocol protocol_;
  const PublisherOptions options_;
  ZmqSocket socket_;
  SocketMonitor monitor_;
  HandshakeFailures handshake_failures_;
  std::map<std::string, Value, std::less<>> values_;  // by topic
};

}  // namespace replicant::rpc
