#include "core/rpc/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/rpc/wire.h"
#include "tests/core/rpc/running_server.h"

namespace replicant::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::RunningServer;

constexpr Clock::Duration kLong = seconds(60);
constexpr uint16_t kEcho = 1;
constexpr uint16_t kThrow = 2;
constexpr uint16_t kLater = 3;
constexpr uint64_t kSession = 4711;
constexpr uint64_t kSender = 42;

const Protocol& TestProtocol() {
  static const Protocol protocol = Protocol::FromTable("test", 1, "echo");
  return protocol;
}

TEST(ServerEndTest, TellsOnceThatItsLoopHasEnded) {
  int num_ends = 0;
  {
    RunningServer server(TestProtocol(), "inproc://end",
                         [&](Server& s) { s.OnEnd([&] { ++num_ends; }); });
    server.metrics();
    EXPECT_EQ(num_ends, 0);
    server.Stop();
    EXPECT_EQ(num_ends, 1);
  }
  EXPECT_EQ(num_ends, 1);
}

void SetUpEcho(Server& server) {
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

// A client that sends whatever bytes the test wants.
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
    return ErrorBody::Decode(envelope.payload);
  }
  void Hello() {
    Send(MakeHeader(kHelloKind), HelloBody{"test", 1, "raw"}.Encode());
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

ServerOptions TestOptions() {
  ServerOptions options;
  options.session_id = kSession;
  options.tick_interval = milliseconds(5);
  return options;
}

constexpr const char* kAddress = "tcp://127.0.0.1:*";

TEST(ServerTest, HelloThenRequestIsAnsweredWithItsIds) {
  RunningServer server(TestProtocol(), kAddress, SetUpEcho, TestOptions());
  RawClient client(server.endpoint());
  client.Hello();
  client.Send(RawClient::MakeHeader(kEcho, 99),
              MakeMessage(Frame::Copy("ping")));
  const Envelope reply = client.Receive();
  EXPECT_EQ(reply.header, (Header{.kind = kEcho,
                                  .flags = kReply,
                                  .session_id = kSession,
                                  .schema_hash = TestProtocol().schema_hash,
                                  .request_id = 99,
                                  .sender_id = kSender}));
  EXPECT_EQ(reply.payload.at(0).text(), "ping");
}

TEST(ServerTest, UnknownSessionAndUnknownPeerAreAnsweredHelloAgain) {
  RunningServer server(TestProtocol(), kAddress, SetUpEcho, TestOptions());
  RawClient client(server.endpoint());
  // the right session, but it never said hello
  client.Send(RawClient::MakeHeader(kEcho), {});
  EXPECT_EQ(client.ReceiveError().code, ErrorCode::kUnknownSession);
  client.Hello();
  Header old = RawClient::MakeHeader(kEcho);
  old.session_id = kSession - 1;
  client.Send(old, {});
  const ErrorBody error = client.ReceiveError();
  EXPECT_EQ(error.code, ErrorCode::kUnknownSession);
  EXPECT_EQ(error.text, "hello again");
  EXPECT_EQ(server.metrics().unknown_session, 2u);
}

TEST(ServerTest, ExceptionOfAHandlerBecomesAnErrorReplyAndTheLoopGoesOn) {
  RunningServer server(TestProtocol(), kAddress, SetUpEcho, TestOptions());
  RawClient client(server.endpoint());
  client.Hello();
  const auto ask = [&](const char* text) {
    client.Send(RawClient::MakeHeader(kThrow), MakeMessage(Frame::Copy(text)));
    return client.ReceiveError();
  };
  EXPECT_EQ(ask("argument").code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ask("payload").code, ErrorCode::kMalformed);
  const ErrorBody error = ask("disk");
  EXPECT_EQ(error.code, ErrorCode::kFailed);
  EXPECT_EQ(error.text, "disk full");
  client.Send(RawClient::MakeHeader(77), {});
  EXPECT_EQ(client.ReceiveError().text, "no handler for messages of kind 77");
  client.Send(RawClient::MakeHeader(kEcho), {});
  EXPECT_EQ(client.Receive().header.flags, kReply);
}

TEST(ServerTest, OtherSchemaIsRefusedWithBothNamesVersionsAndHashes) {
  const Protocol ours{"replay", 2, 0xaa};
  RunningServer server(ours, kAddress, SetUpEcho, TestOptions());
  RawClient client(server.endpoint());
  Header header = RawClient::MakeHeader(kHelloKind);
  header.schema_hash = 0xbb;
  client.Send(header, HelloBody{"replay", 1, "actor-3"}.Encode());
  const ErrorBody error = client.ReceiveError();
  EXPECT_EQ(error.code, ErrorCode::kSchemaMismatch);
  EXPECT_EQ(error.text,
            "the server speaks replay version 2 (schema 0x00000000000000aa), "
            "the client 'actor-3' replay version 1 (schema "
            "0x00000000000000bb); hint: run the same build on both sides");
}

// Every message that is cut, changed or nonsense is counted and answered, and
// a good client is served all the while.
TEST(ServerTest, MalformedMessagesAreCountedAndAnsweredAndNeverEndTheLoop) {
  ServerOptions options = TestOptions();
  options.max_error_replies_per_s = 1'000'000;
  RunningServer server(TestProtocol(), kAddress, SetUpEcho, options);
  RawClient client(server.endpoint());
  client.Hello();
  Message good = Encode(RawClient::MakeHeader(kEcho), {});
  const std::vector<std::byte> header(good[0].bytes().begin(),
                                      good[0].bytes().end());
  for (size_t size = 0; size < header.size(); ++size) {
    client.Send(MakeMessage(Frame::Copy(std::span(header).first(size))));
    EXPECT_EQ(client.ReceiveError().code, ErrorCode::kMalformed) << size;
  }
  for (size_t bit = 0; bit < 8 * header.size(); ++bit) {
    std::vector<std::byte> changed = header;
    changed[bit / 8] ^= std::byte{1} << (bit % 8);
    client.Send(MakeMessage(Frame::Copy(changed)));
    const bool is_version = bit / 16 == 2;
    EXPECT_EQ(client.ReceiveError().code,
              is_version ? ErrorCode::kVersionMismatch : ErrorCode::kMalformed)
        << bit;
  }
  // a hello without a body, a reply sent to a server, too many parts
  client.Send(RawClient::MakeHeader(kHelloKind), {});
  EXPECT_EQ(client.ReceiveError().code, ErrorCode::kMalformed);
  Header reply = RawClient::MakeHeader(kEcho);
  reply.flags = kReply;
  client.Send(reply, {});
  EXPECT_EQ(client.ReceiveError().code, ErrorCode::kMalformed);
  client.Send(RawClient::MakeHeader(kEcho), Message(1025));
  EXPECT_EQ(client.ReceiveError().text, "more than 1025 parts");

  const ServerMetrics metrics = server.metrics();
  EXPECT_EQ(metrics.malformed, 64u + 512 - 16 + 3);
  EXPECT_EQ(metrics.mismatched, 16u);
  client.Send(RawClient::MakeHeader(kEcho), {});
  EXPECT_EQ(client.Receive().header.flags, kReply);
}

TEST(ServerTest, ErrorRepliesToMalformedMessagesAreLimited) {
  FakeClock clock;
  ServerOptions options = TestOptions();
  options.clock = &clock;
  options.max_error_replies_per_s = 3;
  RunningServer server(TestProtocol(), kAddress, SetUpEcho, options);
  RawClient client(server.endpoint());
  for (int i = 0; i < 10; ++i) client.Send(MakeMessage(Frame::Copy("x")));
  for (int i = 0; i < 3; ++i) static_cast<void>(client.ReceiveError());
  // answers come in order, so this one tells that the seven got none
  client.Hello();
  EXPECT_EQ(server.metrics().errors_withheld, 7u);
  clock.Advance(seconds(1));
  client.Send(MakeMessage(Frame::Copy("x")));
  EXPECT_EQ(client.ReceiveError().code, ErrorCode::kMalformed);
}

TEST(ServerTest, AnswerMayComeLaterAndOnlyTheFirstCounts) {
  std::vector<Responder> waiting;
  const auto set_up = [&](Server& server) {
    server.Handle(kLater, [&](Request& /*request*/, Responder responder) {
      waiting.push_back(responder);
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, TestOptions());
  RawClient client(server.endpoint());
  client.Hello();
  client.Send(RawClient::MakeHeader(kLater, 5), {});
  client.Send(RawClient::MakeHeader(kHeartbeatKind, 6), {});
  // the later message is answered first
  EXPECT_EQ(client.Receive().header.request_id, 6u);
  EXPECT_EQ(server.metrics().unanswered, 1u);
  std::promise<std::pair<bool, bool>> answered;
  server.server().Post([&] {
    const bool first = waiting.at(0).Reply(MakeMessage(Frame::Copy("done")));
    answered.set_value({first, waiting.at(0).Reply({})});
  });
  const Envelope reply = client.Receive();
  EXPECT_EQ(reply.header.request_id, 5u);
  EXPECT_EQ(reply.payload.at(0).text(), "done");
  EXPECT_EQ(answered.get_future().get(), std::make_pair(true, false));
  EXPECT_EQ(server.metrics().unanswered, 0u);
}

TEST(ServerTest, DeadlineOfADeferredAnswerIsKept) {
  FakeClock clock;
  ServerOptions options = TestOptions();
  options.clock = &clock;
  const auto set_up = [&](Server& server) {
    server.Handle(kLater, [&](Request& /*request*/, Responder responder) {
      responder.SetDeadline(clock.Now() + seconds(2));
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, options);
  RawClient client(server.endpoint());
  client.Hello();
  client.Send(RawClient::MakeHeader(kLater), {});
  // answered in order: the request is waiting now
  client.Send(RawClient::MakeHeader(kHeartbeatKind), {});
  EXPECT_EQ(client.Receive().header.kind, kHeartbeatKind);
  clock.Advance(seconds(2));
  EXPECT_EQ(client.ReceiveError().code, ErrorCode::kDeadline);
  EXPECT_EQ(server.metrics().deadlines_missed, 1u);
}

TEST(ServerTest, StopAnswersWhatIsStillWaiting) {
  const auto set_up = [](Server& server) {
    server.Handle(kLater, [](Request& /*request*/, Responder /*responder*/) {});
  };
  RunningServer server(TestProtocol(), kAddress, set_up, TestOptions());
  RawClient client(server.endpoint());
  client.Hello();
  client.Send(RawClient::MakeHeader(kLater), {});
  client.Send(RawClient::MakeHeader(kHeartbeatKind), {});
  static_cast<void>(client.Receive());
  server.Stop();
  EXPECT_EQ(client.ReceiveError().code, ErrorCode::kShuttingDown);
}

TEST(ServerTest, LimitsOfPeersAndOfWaitingRequestsHold) {
  ServerOptions options = TestOptions();
  options.max_peers = 1;
  options.max_unanswered = 1;
  const auto set_up = [](Server& server) {
    server.Handle(kLater, [](Request& /*request*/, Responder /*responder*/) {});
  };
  RunningServer server(TestProtocol(), kAddress, set_up, options);
  RawClient client(server.endpoint());
  client.Hello();
  Header other = RawClient::MakeHeader(kHelloKind);
  other.sender_id = kSender + 1;
  client.Send(other, HelloBody{"test", 1, "second"}.Encode());
  EXPECT_EQ(client.ReceiveError().text,
            "the server has its limit of 1 clients");
  client.Send(RawClient::MakeHeader(kLater), {});
  client.Send(RawClient::MakeHeader(kLater, 2), {});
  EXPECT_EQ(client.ReceiveError().text, "1 requests are waiting");
}

// Would catch one client whose waiting requests shut all others out, even from
// the status.
TEST(ServerTest, OneClientFillsItsOwnShareAlone) {
  ServerOptions options = TestOptions();
  options.max_unanswered = 3;
  options.max_unanswered_of_peer = 2;
  const auto set_up = [](Server& server) {
    server.Handle(kLater, [](Request& /*request*/, Responder /*responder*/) {});
    server.Handle(
        kEcho,
        [](Request& request, Responder responder) {
          responder.Reply(std::move(request.payload));
        },
        Server::Answers::kAtOnce);
  };
  RunningServer server(TestProtocol(), kAddress, set_up, options);
  RawClient client(server.endpoint());
  client.Hello();
  for (const uint64_t id : {1, 2, 3}) {
    client.Send(RawClient::MakeHeader(kLater, id), {});
  }
  EXPECT_EQ(client.ReceiveError().text,
            "2 requests of this client are waiting");
  RawClient other(server.endpoint());
  Header hello = RawClient::MakeHeader(kHelloKind);
  hello.sender_id = kSender + 1;
  other.Send(hello, HelloBody{"test", 1, "second"}.Encode());
  static_cast<void>(other.Receive());
  for (const uint64_t id : {1, 2}) {
    Header header = RawClient::MakeHeader(kLater, id);
    header.sender_id = kSender + 1;
    other.Send(header, {});
  }
  EXPECT_EQ(other.ReceiveError().text, "3 requests are waiting");
  // what is answered at once is never refused
  client.Send(RawClient::MakeHeader(kEcho, 4),
              MakeMessage(Frame::Copy("status")));
  EXPECT_EQ(client.Receive().payload.at(0).text(), "status");
}

// Would catch a pull of megabytes that is answered once for each time that it
// was sent while it waited.
TEST(ServerTest, ARequestThatIsSentAgainWhileItWaitsIsAnsweredOnce) {
  std::vector<Responder> waiting;
  const auto set_up = [&](Server& server) {
    SetUpEcho(server);
    server.Handle(kLater, [&](Request& /*request*/, Responder responder) {
      waiting.push_back(responder);
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, TestOptions());
  RawClient old(server.endpoint());
  old.Hello();
  old.Send(RawClient::MakeHeader(kLater, 5), {});
  old.Send(RawClient::MakeHeader(kHeartbeatKind, 6), {});
  static_cast<void>(old.Receive());
  // by a new connection of the same client, twice
  RawClient now(server.endpoint());
  now.Hello();
  now.Send(RawClient::MakeHeader(kLater, 5), {});
  now.Send(RawClient::MakeHeader(kLater, 5), {});
  now.Send(RawClient::MakeHeader(kHeartbeatKind, 6), {});
  EXPECT_EQ(now.Receive().header.request_id, 6u);
  EXPECT_EQ(server.metrics().repeated, 2u);
  server.server().Post([&] {
    for (const Responder& responder : waiting) responder.Reply({});
  });
  EXPECT_EQ(now.Receive().header.request_id, 5u);
  now.Send(RawClient::MakeHeader(kEcho, 7), {});
  EXPECT_EQ(now.Receive().header.request_id, 7u);
  // executed once, and again only now that it was answered
  now.Send(RawClient::MakeHeader(kLater, 5), {});
  now.Send(RawClient::MakeHeader(kHeartbeatKind, 8), {});
  static_cast<void>(now.Receive());
  EXPECT_EQ(waiting.size(), 2u);
}

TEST(ServerTest, AnIdOfAWaitingRequestIsRefusedForAnotherKind) {
  const auto set_up = [&](Server& server) {
    SetUpEcho(server);
    server.Handle(kLater, [](Request& /*request*/, Responder /*responder*/) {});
  };
  RunningServer server(TestProtocol(), kAddress, set_up, TestOptions());
  RawClient client(server.endpoint());
  client.Hello();
  client.Send(RawClient::MakeHeader(kLater, 5), {});
  client.Send(RawClient::MakeHeader(kEcho, 5), {});
  EXPECT_EQ(client.ReceiveError().text,
            "request 5 of kind 3 still waits for its answer");
}

// No answer means none, not even a refusal.
TEST(ServerTest, AOneWayMessageIsNeverAnswered) {
  RunningServer server(TestProtocol(), kAddress, SetUpEcho, TestOptions());
  RawClient client(server.endpoint());
  client.Hello();
  for (const uint16_t kind : {uint16_t{77}, kThrow, kHeartbeatKind}) {
    Header header = RawClient::MakeHeader(kind, 5);
    header.flags |= kOneWay;
    client.Send(header, MakeMessage(Frame::Copy("argument")));
  }
  client.Send(RawClient::MakeHeader(kEcho, 6), {});
  EXPECT_EQ(client.Receive().header.request_id, 6u);
}

// A server that was stopped and goes on has not read what came meanwhile.
TEST(ServerTest, TimeInWhichTheServerStoodStillIsNoSilence) {
  ServerOptions options = TestOptions();
  options.peer_timeout = seconds(3);
  const auto set_up = [&](Server& server) {
    SetUpEcho(server);
    server.Handle(kLater, [](Request& /*request*/, Responder responder) {
      std::this_thread::sleep_for(milliseconds(3500));
      responder.Reply({});
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, options);
  RawClient client(server.endpoint());
  client.Hello();
  client.Send(RawClient::MakeHeader(kLater, 1), {});
  static_cast<void>(client.Receive());
  // ticks have passed since
  client.Send(RawClient::MakeHeader(kEcho, 2), {});
  EXPECT_EQ(client.Receive().header.request_id, 2u);
  EXPECT_EQ(server.metrics().peers_expired, 0u);
}

TEST(ServerTest, SilentPeerIsReportedAndMustSayHelloAgain) {
  FakeClock clock;
  ServerOptions options = TestOptions();
  options.clock = &clock;
  std::promise<std::string> expired;
  const auto set_up = [&](Server& server) {
    SetUpEcho(server);
    server.OnPeerExpired([&](const Peer& peer) {
      expired.set_value(peer.name);
      throw IoError("must not end the loop");
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, options);
  RawClient client(server.endpoint());
  client.Hello();
  // a heartbeat just before the timeout keeps it
  clock.Advance(seconds(9));
  client.Send(RawClient::MakeHeader(kHeartbeatKind), {});
  static_cast<void>(client.Receive());
  clock.Advance(seconds(9));
  EXPECT_EQ(server.metrics().peers, 1u);
  clock.Advance(seconds(2));
  EXPECT_EQ(expired.get_future().get(), "raw");
  client.Send(RawClient::MakeHeader(kHeartbeatKind), {});
  EXPECT_EQ(client.ReceiveError().code, ErrorCode::kUnknownSession);
  EXPECT_EQ(server.metrics().peers_expired, 1u);
}

// A client that vanishes before its answers must cost nothing. The socket
// learns of the disconnection a little later, so some answers are queued before
// the first one is dropped.
TEST(ServerTest, AnswerToAVanishedClientIsDroppedAndCounted) {
  constexpr int kRequests = 2000;
  std::vector<Responder> waiting;
  const auto set_up = [&](Server& server) {
    server.Handle(kLater, [&](Request& /*request*/, Responder responder) {
      waiting.push_back(responder);
    });
  };
  ServerOptions options = TestOptions();
  options.max_unanswered_of_peer = kRequests;
  RunningServer server(TestProtocol(), kAddress, set_up, options);
  {
    RawClient client(server.endpoint());
    client.Hello();
    for (int i = 1; i <= kRequests; ++i) {
      client.Send(RawClient::MakeHeader(kLater, static_cast<uint64_t>(i)), {});
    }
    client.Send(RawClient::MakeHeader(kHeartbeatKind), {});
    static_cast<void>(client.Receive());
  }
  // an answer a millisecond
  for (int i = 0; i < kRequests; ++i) {
    server.server().Post([&] {
      waiting.back().Reply({});
      waiting.pop_back();
    });
    if (server.metrics().dropped_unroutable > 0) break;
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_GT(server.metrics().dropped_unroutable, 0u);
}

// Would catch a server that learns of a client's death only when it has
// something to tell it.
TEST(ServerTest, AProbeFindsAConnectionThatIsGone) {
  std::atomic<bool> is_lost = false;
  const auto set_up = [&](Server& server) {
    SetUpEcho(server);
    server.OnPeerLost([&](const Peer& peer) { is_lost = peer.id == kSender; });
    server.OnTick([&] { server.Probe(kSender); });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, TestOptions());
  auto client = std::make_unique<RawClient>(server.endpoint());
  client->Hello();
  // what it gets meanwhile answers nothing
  const Envelope probe = client->Receive();
  EXPECT_EQ(probe.header.kind, kHeartbeatKind);
  EXPECT_EQ(probe.header.request_id, 0u);
  EXPECT_FALSE(is_lost);
  client.reset();
  const auto deadline = Clock::Real().Now() + seconds(60);
  while (!is_lost && Clock::Real().Now() < deadline) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(is_lost);
}

TEST(ServerTest, AOneWayMessageMayHaveTheIdOfAWaitingRequest) {
  std::vector<Responder> waiting;
  const auto set_up = [&](Server& server) {
    SetUpEcho(server);
    server.Handle(kLater, [&](Request& /*request*/, Responder responder) {
      waiting.push_back(responder);
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, TestOptions());
  RawClient client(server.endpoint());
  client.Hello();
  client.Send(RawClient::MakeHeader(kLater, 5), {});
  Header one_way = RawClient::MakeHeader(kEcho, 5);
  one_way.flags = kOneWay;
  client.Send(one_way, {});
  // the request is still known as unanswered: a repetition is not handled
  client.Send(RawClient::MakeHeader(kLater, 5), {});
  client.Send(RawClient::MakeHeader(kHeartbeatKind, 6), {});
  EXPECT_EQ(client.Receive().header.request_id, 6u);
  EXPECT_EQ(server.metrics().repeated, 1u);
  server.server().Post([&] {
    for (const Responder& responder : waiting) responder.Reply({});
  });
  EXPECT_EQ(client.Receive().header.request_id, 5u);
}

TEST(ServerTest, OneWayMessageIsHandledAndNotAnswered) {
  RunningServer server(TestProtocol(), kAddress, SetUpEcho, TestOptions());
  RawClient client(server.endpoint());
  client.Hello();
  Header header = RawClient::MakeHeader(kEcho, 3);
  header.flags = kOneWay;
  client.Send(header, {});
  header.kind = kThrow;
  client.Send(header, MakeMessage(Frame::Copy("disk")));
  client.Send(RawClient::MakeHeader(kEcho, 4), {});
  EXPECT_EQ(client.Receive().header.request_id, 4u);
  EXPECT_EQ(server.metrics().unanswered, 0u);
  EXPECT_EQ(server.metrics().handler_errors, 1u);
}

TEST(ServerTest, TickAndPostedWorkRunAndTheirExceptionsDoNotEndTheLoop) {
  std::promise<void> ticked;
  int ticks = 0;
  const auto set_up = [&](Server& server) {
    SetUpEcho(server);
    server.OnTick([&] {
      if (++ticks == 3) ticked.set_value();
      throw IoError("tick");
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, TestOptions());
  server.server().Post([] { throw IoError("posted"); });
  ticked.get_future().wait();
  EXPECT_GE(server.metrics().handler_errors, 4u);
}

TEST(ServerTest, StopBeforeRunEndsItAtOnce) {
  ZmqContext context;
  Server server(context, TestProtocol());
  server.Stop();
  server.Run();
  EXPECT_NE(server.session_id(), 0u);
}

TEST(ServerDeathTest, SecondHandlerOfAKindAborts) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  ZmqContext context;
  Server server(context, TestProtocol());
  server.Handle(5, {});
  EXPECT_DEATH(server.Handle(5, {}), "a second handler of kind 5");
  EXPECT_DEATH(server.Handle(kHelloKind, {}), "kind 0xff01");
}

}  // namespace
}  // namespace replicant::rpc
