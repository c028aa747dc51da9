#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/rpc/fields.h"
#include "base/rpc/server.h"
#include "base/rpc/wire.h"

// A server to test and a client that sends it whatever bytes a test wants.
namespace replicant::rpc::testing {

inline constexpr Clock::Duration kLong = std::chrono::seconds(60);
inline constexpr const char* kAddress = "tcp://127.0.0.1:*";
inline constexpr uint64_t kSession = 4711;
inline constexpr uint64_t kSender = 42;

// Kinds of messages: answered with their own payload, never without an error,
// and later, by a handler of the test's own.
inline constexpr uint16_t kEcho = 1;
inline constexpr uint16_t kThrow = 2;
inline constexpr uint16_t kLater = 3;

inline const Protocol& TestProtocol() {
  static const Protocol protocol = Protocol::FromTable("test", 1, "echo");
  return protocol;
}

inline ServerOptions TestOptions() {
  ServerOptions options;
  options.session_id = kSession;
  options.tick_interval = std::chrono::milliseconds(5);
  return options;
}

// Handles kEcho and kThrow.
inline void SetUpEcho(Server& server) {
  server.Handle(kEcho, [](Request& request, Responder responder) {
    responder.Reply(std::move(request.payload));
  });
  server.Handle(kThrow, [](Request& request, Responder /*responder*/) {
    const std::string text(request.payload.at(0).text());
    if (text == "argument") throw InvalidArgument("bad argument");
    if (text == "payload") {
      WireReader("m", std::span<const std::byte>()).Read<int>("x");
    }
    throw IoError("disk full");
  });
}

class RawClient {
 public:
  explicit RawClient(const std::string& endpoint)
      : socket_(context_, SocketType::kDealer) {
    socket_.Connect(endpoint);
  }

  void Send(Message message) {
    EXPECT_EQ(socket_.Send(message, kLong), SendResult::kOk);
  }
  void Send(const Header& header, Message payload) {
    Send(Encode(header, std::move(payload)));
  }
  // The next message; an empty envelope if none comes in time.
  Envelope Receive(Clock::Duration timeout = kLong) {
    Message message;
    const ReceiveResult result = socket_.Receive(&message, timeout);
    EXPECT_EQ(result, ReceiveResult::kOk);
    return result == ReceiveResult::kOk ? Decode(message) : Envelope{};
  }
  ErrorBody ReceiveError() {
    const Envelope envelope = Receive();
    EXPECT_TRUE(envelope.header.has(kError));
    return DecodeMessage<ErrorBody>(envelope.payload);
  }
  void Hello() {
    Send(MakeHeader(kHelloKind), EncodeMessage(HelloBody{"test", 1, "raw"}));
    EXPECT_EQ(Receive().header.session_id, kSession);
  }

  static Header MakeHeader(uint16_t kind, uint64_t request_id = 1) {
    return {.kind = kind,
            .session_id = kSession,
            .schema_hash = TestProtocol().schema_hash,
            .request_id = request_id,
            .sender_id = kSender};
  }

 private:
  ZmqContext context_;
  ZmqSocket socket_;
};

}  // namespace replicant::rpc::testing
