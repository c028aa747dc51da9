#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/rpc/server.h"
#include "tests/base/rpc/raw_client.h"
#include "tests/base/rpc/running_server.h"

// Requests that wait for their answers.
namespace replicant::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::kAddress;
using testing::kEcho;
using testing::kLater;
using testing::kSender;
using testing::RawClient;
using testing::RunningServer;
using testing::SetUpEcho;
using testing::TestOptions;
using testing::TestProtocol;

TEST(ServerRequestsTest, AnswerMayComeLaterAndOnlyTheFirstCounts) {
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

TEST(ServerRequestsTest, DeadlineOfADeferredAnswerIsKept) {
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

TEST(ServerRequestsTest, StopAnswersWhatIsStillWaiting) {
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

// Would catch one client whose waiting requests shut all others out, even from
// the status.
TEST(ServerRequestsTest, OneClientFillsItsOwnShareAlone) {
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
  other.Send(hello, EncodeMessage(HelloBody{"test", 1, "second"}));
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
TEST(ServerRequestsTest, ARequestThatIsSentAgainWhileItWaitsIsAnsweredOnce) {
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

TEST(ServerRequestsTest, AnIdOfAWaitingRequestIsRefusedForAnotherKind) {
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

// A client that vanishes before its answers must cost nothing. The socket
// learns of the disconnection a little later, so some answers are queued before
// the first one is dropped.
TEST(ServerRequestsTest, AnswerToAVanishedClientIsDroppedAndCounted) {
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

TEST(ServerRequestsTest, AOneWayMessageMayHaveTheIdOfAWaitingRequest) {
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

}  // namespace
}  // namespace replicant::rpc
