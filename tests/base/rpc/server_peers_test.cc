#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "base/rpc/server.h"
#include "tests/base/rpc/raw_client.h"
#include "tests/base/rpc/running_server.h"

// Clients that are unknown, silent, gone or too many.
namespace replicant::rpc {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::kAddress;
using testing::kEcho;
using testing::kLater;
using testing::kSender;
using testing::kSession;
using testing::RawClient;
using testing::RunningServer;
using testing::SetUpEcho;
using testing::TestOptions;
using testing::TestProtocol;

TEST(ServerPeersTest, LimitsOfPeersAndOfWaitingRequestsHold) {
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
  client.Send(other, EncodeMessage(HelloBody{"test", 1, "second"}));
  EXPECT_EQ(client.ReceiveError().text,
            "the server has reached its limit of 1 clients");
  client.Send(RawClient::MakeHeader(kLater), {});
  client.Send(RawClient::MakeHeader(kLater, 2), {});
  EXPECT_EQ(client.ReceiveError().text, "1 requests are waiting");
}

// A server that was stopped and continues has not read the messages of the
// pause.
TEST(ServerPeersTest, TimeInWhichTheServerStoodStillIsNoSilence) {
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

TEST(ServerPeersTest, SilentPeerIsReportedAndMustSayHelloAgain) {
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

// Would catch a server that learns of a client's death only when it has
// something to tell it.
TEST(ServerPeersTest, AProbeFindsAConnectionThatIsGone) {
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

TEST(ServerPeersTest, UnknownSessionAndUnknownPeerAreAnsweredHelloAgain) {
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

}  // namespace
}  // namespace replicant::rpc
