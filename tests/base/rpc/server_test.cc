#include "base/rpc/server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "tests/base/rpc/raw_client.h"
#include "tests/base/rpc/running_server.h"

namespace replicant::rpc {
namespace {

using std::chrono::seconds;
using testing::kAddress;
using testing::kEcho;
using testing::kSender;
using testing::kSession;
using testing::kThrow;
using testing::RawClient;
using testing::RunningServer;
using testing::SetUpEcho;
using testing::TestOptions;
using testing::TestProtocol;

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
  client.Send(header, EncodeMessage(HelloBody{"replay", 1, "actor-3"}));
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
