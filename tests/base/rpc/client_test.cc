#include "base/rpc/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "tests/base/rpc/running_server.h"

namespace replicant::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::RunningServer;

constexpr Clock::Duration kLong = seconds(60);
constexpr uint16_t kEcho = 1;
constexpr uint16_t kRefuse = 2;
constexpr uint16_t kSilent = 3;
constexpr const char* kAddress = "tcp://127.0.0.1:*";

const Protocol& TestProtocol() {
  static const Protocol protocol = Protocol::FromTable("test", 1, "echo");
  return protocol;
}

void SetUpService(Server& server) {
  server.Handle(kEcho, [](Request& request, Responder responder) {
    responder.Reply(std::move(request.payload), /*has_crc=*/true);
  });
  server.Handle(kRefuse, [](Request& /*request*/, Responder responder) {
    responder.ReplyError(ErrorCode::kBusy, "limiter is closed");
  });
  server.Handle(kSilent, [](Request& /*request*/, Responder /*responder*/) {});
}

Message Text(const std::string& text) { return MakeMessage(Frame::Copy(text)); }

TEST(ClientTest, AwaitAnyEndsWithAReplyAWakeOrTheTimeout) {
  RunningServer server(TestProtocol(), kAddress, SetUpService);
  ZmqContext context;
  Client first(context, TestProtocol()), second(context, TestProtocol());
  first.Connect(server.endpoint());
  second.Connect(server.endpoint());
  ASSERT_EQ(first.AwaitSession(kLong), CallResult::kOk);
  ASSERT_EQ(second.AwaitSession(kLong), CallResult::kOk);
  Client* const clients[] = {&first, &second};
  WakeEvent wake;
  const auto start = Clock::Real().Now();

  // a reply to the second one
  const auto id = second.Start(kEcho, Text("ping"), {.timeout = kLong});
  ASSERT_TRUE(id.has_value());
  std::optional<Client::RequestId> done;
  while (!done.has_value() && Clock::Real().Now() < start + kLong) {
    Client::AwaitAny(clients, wake, kLong);
    second.Process(Clock::Duration(0));
    done = second.WaitAny(Clock::Duration(0));
  }
  EXPECT_EQ(done, id);
  EXPECT_EQ(second.Wait(*id).payload.at(0).text(), "ping");

  // another thread, before the wait and during it
  wake.Wake();
  Client::AwaitAny(clients, wake, kLong);
  Thread waker("waker", [&](const Thread::StopToken&) { wake.Wake(); });
  // heartbeats end a wait, too, after a second
  Client::AwaitAny(clients, wake, kLong);
  waker.Join();
  EXPECT_LT(Clock::Real().Now(), start + kLong);
  wake.Clear();
  Client::AwaitAny(clients, wake, milliseconds(1));
}

// Would catch a client that keeps the number of every call that it ever made,
// and for which AwaitAny() no longer waits.
TEST(ClientTest, ACallThatHasReturnedIsForgotten) {
  RunningServer server(TestProtocol(), kAddress, SetUpService);
  ZmqContext context;
  Client client(context, TestProtocol(),
                {.heartbeat_interval = std::chrono::hours(1)});
  client.Connect(server.endpoint());
  ASSERT_EQ(client.Call(kEcho, Text("ping"), {.timeout = kLong}).result,
            CallResult::kOk);
  Client* const clients[] = {&client};
  WakeEvent wake;
  const auto start = Clock::Real().Now();
  Client::AwaitAny(clients, wake, milliseconds(20));
  EXPECT_GE(Clock::Real().Now() - start, milliseconds(20));
}

class ClientTransportTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ClientTransportTest, CallIsAnswered) {
  const TemporaryFolder folder;
  std::string address = GetParam();
  if (address == "ipc") address = "ipc://" + (folder.path() / "s").string();
  RunningServer server(TestProtocol(), address, SetUpService);
  ZmqContext context;
  Client client(context, TestProtocol());
  client.Connect(server.endpoint());
  const CallReply reply =
      client.Call(kEcho, Text("ping"), {.timeout = kLong, .has_crc = true});
  ASSERT_EQ(reply.result, CallResult::kOk);
  EXPECT_EQ(reply.payload.at(0).text(), "ping");
  EXPECT_EQ(client.session_id(), server.server().session_id());
  EXPECT_TRUE(client.IsResponsive());
}

INSTANTIATE_TEST_SUITE_P(Transports, ClientTransportTest,
                         ::testing::Values(kAddress, "ipc"));

TEST(ClientTest, InprocServesWithinOneContext) {
  ZmqContext context;
  Server server(context, TestProtocol());
  SetUpService(server);
  server.Bind("inproc://service");
  Thread loop("server", [&](const auto&) { server.Run(); });
  Client client(context, TestProtocol());
  client.Connect("inproc://service");
  EXPECT_EQ(client.Call(kEcho, Text("x"), {.timeout = kLong}).result,
            CallResult::kOk);
  server.Stop();
  loop.Join();
}

TEST(ClientTest, ManyRequestsInFlightAreEachAnsweredOnce) {
  RunningServer server(TestProtocol(), kAddress, SetUpService);
  ZmqContext context;
  Client client(context, TestProtocol(), {.max_in_flight = 100});
  client.Connect(server.endpoint());
  std::set<Client::RequestId> ids;
  for (int i = 1; i <= 100; ++i) {
    const auto id =
        client.Start(kEcho, Text(std::to_string(i)), {.timeout = kLong});
    ASSERT_TRUE(id.has_value());
    ids.insert(*id);
  }
  EXPECT_FALSE(client.Start(kEcho, {}).has_value());
  EXPECT_EQ(client.Call(kEcho, {}).error_text,
            "100 requests are already in flight");
  while (!ids.empty()) {
    const auto id = client.WaitAny(kLong);
    ASSERT_TRUE(id.has_value());
    ASSERT_EQ(ids.erase(*id), 1u);
    const CallReply reply = client.Wait(*id);
    ASSERT_EQ(reply.result, CallResult::kOk);
    EXPECT_EQ(reply.payload.at(0).text(), std::to_string(*id));
  }
  EXPECT_FALSE(client.WaitAny(kLong).has_value());
  EXPECT_EQ(client.metrics().replies, 100u);
  EXPECT_EQ(client.metrics().late_replies, 0u);
}

TEST(ClientTest, RefusalOfTheServerComesWithCodeAndText) {
  RunningServer server(TestProtocol(), kAddress, SetUpService);
  ZmqContext context;
  Client client(context, TestProtocol());
  client.Connect(server.endpoint());
  const CallReply reply = client.Call(kRefuse, {}, {.timeout = kLong});
  EXPECT_EQ(reply.result, CallResult::kError);
  EXPECT_EQ(reply.error, ErrorCode::kBusy);
  EXPECT_EQ(reply.error_text, "limiter is closed");
}

TEST(ClientTest, CallWithoutServerTimesOutAndSoDoesAwaitSession) {
  const TemporaryFolder folder;
  ZmqContext context;
  Client client(context, TestProtocol());
  client.Connect("ipc://" + (folder.path() / "nobody").string());
  EXPECT_EQ(client.AwaitSession(milliseconds(10)), CallResult::kTimeout);
  EXPECT_EQ(client.Call(kEcho, {}, {.timeout = milliseconds(10)}).result,
            CallResult::kTimeout);
  EXPECT_EQ(client.SendOneWay(kEcho, {}, milliseconds(10)),
            SendResult::kTimeout);
  EXPECT_FALSE(client.IsResponsive());
}

// The server answers only once the request was sent again.
TEST(ClientTest, IdempotentRequestIsRepeatedAndExecutedOnce) {
  // until the answer; a repetition that comes later is a new request
  std::vector<Responder> attempts;
  size_t num_executed = 0;
  const auto set_up = [&](Server& server) {
    SetUpService(server);
    server.Handle(9, [&](Request& /*request*/, Responder responder) {
      attempts.push_back(responder);
    });
    server.OnTick([&] {
      if (server.metrics().repeated == 0) return;
      if (num_executed == 0) num_executed = attempts.size();
      for (const Responder& attempt : attempts) attempt.Reply(Text("done"));
      attempts.clear();
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up);
  ZmqContext context;
  Client client(context, TestProtocol(), {.attempt_timeout = milliseconds(20)});
  client.Connect(server.endpoint());
  ASSERT_EQ(client.AwaitSession(kLong), CallResult::kOk);
  const CallReply reply =
      client.Call(9, {}, {.timeout = kLong, .is_idempotent = true});
  EXPECT_EQ(reply.result, CallResult::kOk);
  // whatever came after the reply would have been seen
  EXPECT_EQ(client.Call(kEcho, Text("x"), {.timeout = kLong}).result,
            CallResult::kOk);
  EXPECT_GE(client.metrics().retries, 1u);
  server.Stop();
  EXPECT_EQ(num_executed, 1u);
}

// Would catch a client that goes on with the server that it has left.
TEST(ClientTest, RequestsUnderWayGoToTheServersNewAddress) {
  RunningServer first(TestProtocol(), kAddress, SetUpService);
  RunningServer second(TestProtocol(), kAddress, [](Server& server) {
    server.Handle(kSilent, [](Request& /*request*/, Responder responder) {
      responder.Reply(Text("second"));
    });
  });
  ZmqContext context;
  Client client(context, TestProtocol());
  const CallOptions idempotent = {.timeout = kLong, .is_idempotent = true};
  // before there is any address
  const auto early = client.Start(kEcho, Text("early"), idempotent);
  client.Process(milliseconds(1));
  client.Connect(first.endpoint());
  EXPECT_EQ(client.Wait(*early).payload.at(0).text(), "early");
  const auto again = client.Start(kSilent, {}, idempotent);
  const auto once = client.Start(kSilent, {}, {.timeout = kLong});
  // both have arrived
  ASSERT_EQ(client.Call(kEcho, {}, {.timeout = kLong}).result, CallResult::kOk);
  EXPECT_THROW(client.Connect("nonsense"), CommError);
  client.Connect(second.endpoint());
  EXPECT_EQ(client.Wait(*once).result, CallResult::kLost);
  EXPECT_EQ(client.Wait(*again).payload.at(0).text(), "second");
  EXPECT_EQ(client.session_id(), second.server().session_id());
}

TEST(ClientTest, RequestThatIsNotIdempotentIsSentOnce) {
  RunningServer server(TestProtocol(), kAddress, SetUpService);
  ZmqContext context;
  Client client(context, TestProtocol(), {.attempt_timeout = milliseconds(5)});
  client.Connect(server.endpoint());
  ASSERT_EQ(client.AwaitSession(kLong), CallResult::kOk);
  EXPECT_EQ(client.Call(kSilent, {}, {.timeout = milliseconds(30)}).result,
            CallResult::kTimeout);
  EXPECT_EQ(client.metrics().retries, 0u);
  // messages come in order: whatever was sent has arrived by then
  ASSERT_EQ(client.Call(kEcho, Text("x"), {.timeout = kLong}).result,
            CallResult::kOk);
  EXPECT_EQ(server.metrics().unanswered, 1u);
}

TEST(ClientTest, OtherMessageTableIsAnErrorThatNamesBoth) {
  RunningServer server({"replay", 2, 0xaa}, kAddress, SetUpService);
  ZmqContext context;
  Client client(context, {"replay", 1, 0xbb}, {.name = "actor-3"});
  client.Connect(server.endpoint());
  try {
    static_cast<void>(client.AwaitSession(kLong));
    FAIL() << "no CommError";
  } catch (const CommError& e) {
    EXPECT_EQ(e.what(),
              server.endpoint() +
                  ": the server speaks replay version 2 (schema "
                  "0x00000000000000aa), the client 'actor-3' replay version 1 "
                  "(schema 0x00000000000000bb); hint: run the same build on "
                  "both sides");
  }
}

TEST(ClientTest, OneWayMessagesArriveInOrderWithRequests) {
  std::vector<std::string> seen;
  const auto set_up = [&](Server& server) {
    server.Handle(9, [&](Request& request, Responder responder) {
      seen.emplace_back(request.payload.at(0).text());
      responder.Reply({});
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up);
  ZmqContext context;
  Client client(context, TestProtocol());
  client.Connect(server.endpoint());
  const auto first = client.Start(9, Text("a"), {.timeout = kLong});
  ASSERT_EQ(client.SendOneWay(9, Text("b"), kLong), SendResult::kOk);
  ASSERT_EQ(client.Call(9, Text("c"), {.timeout = kLong}).result,
            CallResult::kOk);
  EXPECT_EQ(client.Wait(*first).result, CallResult::kOk);
  server.Stop();
  EXPECT_THAT(seen, ::testing::ElementsAre("a", "b", "c"));
}

TEST(ClientTest, OversizedRequestIsRefusedBeforeItIsSent) {
  ZmqContext context;
  Client client(context, TestProtocol(), {.socket = {.max_part_bytes = 10}});
  try {
    static_cast<void>(client.Start(kEcho, Text("eleven byte")));
    FAIL() << "no InvalidArgument";
  } catch (const InvalidArgument& e) {
    EXPECT_STREQ(e.what(),
                 "message of 1 parts, the longest of 11 bytes, 11 bytes in "
                 "all; allowed are 1024 parts of 10 bytes, 4294967296 bytes in "
                 "all");
  }
}

// A server that forgot a silent client is not a restarted one.
TEST(ClientTest, ForgottenClientSaysHelloAgainAndNobodyNotices) {
  FakeClock clock;
  ServerOptions options;
  options.clock = &clock;
  options.tick_interval = milliseconds(1);
  RunningServer server(TestProtocol(), kAddress, SetUpService, options);
  ZmqContext context;
  // one hello only, however slow this machine is
  Client client(context, TestProtocol(), {.attempt_timeout = kLong});
  client.Connect(server.endpoint());
  ASSERT_EQ(client.AwaitSession(kLong), CallResult::kOk);
  clock.Advance(seconds(60));
  const Clock::TimePoint end = Clock::Real().Now() + kLong;
  while (server.metrics().peers > 0 && Clock::Real().Now() < end) {
  }
  EXPECT_EQ(client.Call(kEcho, Text("x"), {.timeout = kLong}).result,
            CallResult::kOk);
  EXPECT_EQ(client.metrics().hellos, 2u);
  EXPECT_EQ(client.metrics().session_changes, 0u);
}

// Nobody answers what the server forgot with its client.
TEST(ClientTest, WaitingRequestsOfAForgottenClientAreLostOrSentAgain) {
  FakeClock clock;
  ServerOptions options;
  options.clock = &clock;
  options.tick_interval = milliseconds(1);
  std::atomic<int> num_silent = 0;
  const auto set_up = [&](Server& server) {
    server.Handle(kEcho, [](Request& request, Responder responder) {
      responder.Reply(std::move(request.payload));
    });
    server.Handle(kSilent, [&](Request& /*request*/, Responder responder) {
      if (++num_silent > 2) responder.Reply({});
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up, options);
  ZmqContext context;
  Client client(context, TestProtocol(), {.attempt_timeout = kLong});
  client.Connect(server.endpoint());
  ASSERT_EQ(client.AwaitSession(kLong), CallResult::kOk);
  const auto once = client.Start(kSilent, {}, {.timeout = kLong});
  const auto again =
      client.Start(kSilent, {}, {.timeout = kLong, .is_idempotent = true});
  const Clock::TimePoint end = Clock::Real().Now() + kLong;
  while (num_silent < 2 && Clock::Real().Now() < end) {
  }
  clock.Advance(seconds(30));
  while (server.metrics().peers > 0 && Clock::Real().Now() < end) {
  }
  // a message tells the client that it was forgotten
  EXPECT_EQ(client.Call(kEcho, Text("x"), {.timeout = kLong}).result,
            CallResult::kOk);
  EXPECT_EQ(client.Wait(*once).result, CallResult::kLost);
  EXPECT_EQ(client.Wait(*again).result, CallResult::kOk);
}

// A server counts messages of the client, not those that it sends.
TEST(ClientTest, ABusyReceiverKeepsItsPlaceByHeartbeats) {
  const auto set_up = [](Server& server) {
    SetUpService(server);
    server.OnTick([&server, id = uint64_t{5}] { server.Probe(id); });
  };
  ServerOptions options;
  options.tick_interval = milliseconds(1);
  RunningServer server(TestProtocol(), kAddress, set_up, options);
  ZmqContext context;
  Client client(context, TestProtocol(),
                {.attempt_timeout = kLong,
                 .heartbeat_interval = milliseconds(50),
                 .sender_id = 5});
  client.Connect(server.endpoint());
  ASSERT_EQ(client.AwaitSession(kLong), CallResult::kOk);
  const uint64_t before = server.metrics().messages_received;
  const Clock::TimePoint end = Clock::Real().Now() + kLong;
  while (server.metrics().messages_received < before + 3 &&
         Clock::Real().Now() < end) {
    client.Process(milliseconds(1));
  }
  EXPECT_GE(server.metrics().messages_received, before + 3);
}

TEST(ClientTest, IdleClientKeepsItsPlaceByHeartbeats) {
  RunningServer server(TestProtocol(), kAddress, SetUpService);
  ZmqContext context;
  Client client(
      context, TestProtocol(),
      {.attempt_timeout = kLong, .heartbeat_interval = milliseconds(5)});
  client.Connect(server.endpoint());
  ASSERT_EQ(client.AwaitSession(kLong), CallResult::kOk);
  const uint64_t before = server.metrics().messages_received;
  // returns once the heartbeat was answered
  client.Process(kLong);
  EXPECT_GT(server.metrics().messages_received, before);
}

// The connection is fine, but the server's loop hangs: as good as dead.
TEST(ClientTest, SilentServerIsGivenUpAndFoundAgain) {
  std::promise<void> may_go_on;
  std::shared_future<void> go_on = may_go_on.get_future().share();
  const auto set_up = [&](Server& server) {
    SetUpService(server);
    server.Handle(9, [&](Request& /*request*/, Responder responder) {
      go_on.wait();
      responder.Reply({});
    });
  };
  RunningServer server(TestProtocol(), kAddress, set_up);
  ZmqContext context;
  Client client(context, TestProtocol(),
                {.heartbeat_interval = milliseconds(5),
                 .server_timeout = milliseconds(200)});
  client.Connect(server.endpoint());
  // its own answer may be lost as well, so it must be one that may be repeated
  const auto echo =
      client.Start(kEcho, Text("x"), {.timeout = kLong, .is_idempotent = true});
  ASSERT_TRUE(echo.has_value());
  ASSERT_EQ(client.Wait(*echo).result, CallResult::kOk);
  const auto lost = client.Start(9, {}, {.timeout = kLong});
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(client.Wait(*lost).result, CallResult::kLost);
  EXPECT_GE(client.metrics().disconnects, 1u);
  may_go_on.set_value();
  EXPECT_EQ(
      client.Call(kEcho, Text("x"), {.timeout = kLong, .is_idempotent = true})
          .result,
      CallResult::kOk);
  EXPECT_EQ(client.metrics().session_changes, 0u);
}

TEST(ClientTest, ShutdownOfTheContextEndsEveryCall) {
  ZmqContext context;
  Client client(context, TestProtocol());
  client.Connect("tcp://127.0.0.1:9");
  context.Shutdown();
  EXPECT_EQ(client.Call(kEcho, {}, {.timeout = kLong}).result,
            CallResult::kClosed);
  EXPECT_EQ(client.AwaitSession(kLong), CallResult::kClosed);
  EXPECT_EQ(client.SendOneWay(kEcho, {}, kLong), SendResult::kClosed);
}

}  // namespace
}  // namespace replicant::rpc
