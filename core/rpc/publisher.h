#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/rpc/envelope.h"
#include "core/rpc/socket.h"

namespace replicant::rpc {

struct PublisherOptions {
  // A small queue: what a subscriber cannot fetch in time is dropped for it.
  SocketOptions socket = {.send_queue_messages = 4};
  // Names this run of the publisher; 0 draws a random one.
  uint64_t session_id = 0;
  Clock* clock = &Clock::Real();
};

// Gives every subscriber the newest value of each topic: at once when it
// subscribes, and then whenever there is a newer one.
//
// A value's payload is kept, without a copy, until the next one of its topic.
// Each message carries a sequence number (1, 2, ... per topic and session) and
// a CRC-32C of its payload; see docs/rpc.md for its form. A subscription
// makes the topic's value go out again to all its subscribers, which drop what
// they have already: ZeroMQ cannot send to one of them.
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

  // Sends a value; never waits. `version` is the caller's name for it (a
  // learner's step, say), which subscribers are given. Throws InvalidArgument
  // for a topic that is empty, too long or holds a zero byte.
  void Publish(std::string_view topic, uint64_t version, Message payload);

  // Answers new subscriptions. Call it often; returns after `timeout`, or
  // sooner once something came: kOk if it was answered.
  ReceiveResult Process(Clock::Duration timeout);

  void DetachFromThread() { socket_.DetachFromThread(); }
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
  std::map<std::string, Value, std::less<>> values_;  // by topic
};

}  // namespace replicant::rpc
