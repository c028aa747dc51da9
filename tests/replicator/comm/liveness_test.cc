#include "replicator/comm/liveness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/process.h"
#include "replicator/comm/host_addresses.h"
#include "replicator/comm/liveness_messages.h"
#include "tests/support/message_of.h"

namespace replicant::comm {
namespace {

using namespace std::chrono_literals;
using replicant::testing::MessageOf;

constexpr auto kInterval = 20ms;
// Nobody is silent for too long, however slow this machine is.
Liveness::Options Quick() {
  return {.interval = kInterval, .timeout = 60s, .end_grace = 60s};
}
// Long enough for a broken connection to be taken for a death.
constexpr auto kAWhile = 6 * kInterval;

// A group whose ranks are objects of this process.
class LivenessTest : public ::testing::Test {
 protected:
  // The next rank of the group, from 0.
  std::unique_ptr<Liveness> Make(int size, bool is_one_host = true,
                                 const Liveness::Options& options = Quick()) {
    const int rank = num_made_++;
    std::vector<std::string> places;
    places.reserve(static_cast<size_t>(size));
    for (int r = 0; r < size; ++r) places.push_back(fmt::format("host/{}", r));
    return std::make_unique<Liveness>(
        options, Liveness::Group{rank, places, is_one_host},
        [&](const std::string& text) {
          if (rank == 0) address_ = text;
          return address_;
        });
  }
  // The next rank as somebody else's client, who beats only when asked to.
  std::unique_ptr<rpc::Client> MakeClient(uint64_t sender_id = 0) {
    ++num_made_;
    const LivenessAddress address = LivenessAddress::Decode(address_);
    rpc::ClientOptions options;
    options.sender_id = sender_id;
    options.socket.curve =
        rpc::CurveClient{address.client_keys, address.server_public_key};
    auto client =
        std::make_unique<rpc::Client>(context_, LivenessProtocol(), options);
    client->Connect(address.endpoints[0]);
    return client;
  }
  static LivenessAnswer Beat(rpc::Client& client, const LivenessBeat& beat) {
    return rpc::DecodeMessage<LivenessAnswer>(
        client.Call(kLivenessBeat, rpc::EncodeMessage(beat)).payload);
  }
  // Beats, and again; returns when the first beat is answered and so the second
  // one, whose id this is, has arrived.
  static rpc::Client::RequestId BeatTwice(rpc::Client& client,
                                          const LivenessBeat& beat) {
    const auto first = client.Start(kLivenessBeat, rpc::EncodeMessage(beat));
    const auto second = client.Start(kLivenessBeat, rpc::EncodeMessage(beat));
    EXPECT_EQ(
        rpc::DecodeMessage<LivenessAnswer>(client.Wait(*first).payload).order,
        LivenessAnswer::Order::kGoOn);
    return *second;
  }
  // Its verdict, once there is one; passes the time with `meanwhile`.
  static std::string Await(
      const Liveness& liveness,
      const std::function<void()>& meanwhile = [] {}) {
    const auto deadline = Clock::Real().Now() + 60s;
    while (!liveness.has_verdict() && Clock::Real().Now() < deadline) {
      meanwhile();
      std::this_thread::sleep_for(1ms);
    }
    return liveness.verdict();
  }

  rpc::ZmqContext context_;
  std::string address_;
  int num_made_ = 0;
};

TEST_F(LivenessTest, WhoLeavesIsNotMissed) {
  auto first = Make(3);
  auto second = Make(3);
  auto third = Make(3);
  second.reset();
  std::this_thread::sleep_for(kAWhile);
  EXPECT_EQ(first->verdict(), "");
  EXPECT_EQ(third->verdict(), "");
  // whoever is left when the first one leaves watches no more
  first.reset();
  std::this_thread::sleep_for(kAWhile);
  EXPECT_EQ(third->verdict(), "");
}

TEST_F(LivenessTest, WhatOneReportsAllKnow) {
  for (size_t reporter = 0; reporter < 3; ++reporter) {
    num_made_ = 0;
    std::vector<std::unique_ptr<Liveness>> ranks;
    ranks.reserve(3);
    for (int r = 0; r < 3; ++r) ranks.push_back(Make(3));
    ranks[reporter]->Report("out of memory");
    for (const auto& rank : ranks) EXPECT_EQ(Await(*rank), "out of memory");
    // whoever reported first, or ends while it is told
    ranks[reporter].reset();
  }
}

TEST_F(LivenessTest, AReportIsDeliveredByOneThatEnds) {
  auto first = Make(2);
  auto second = Make(2);
  second->Report("no such file");
  second.reset();
  EXPECT_EQ(Await(*first), "no such file");
}

TEST_F(LivenessTest, ARankWhoseConnectionBreaksIsNamedAtOnce) {
  // its last beat is held for 4 s, in which its connection goes
  Liveness::Options slow = Quick();
  slow.interval = 2s;
  auto first = Make(3, /*is_one_host=*/true, slow);
  auto client = MakeClient();
  auto third = Make(3);
  const Collective barrier{.place = "step.cc:7"};
  std::vector<std::unique_ptr<Liveness::CallScope>> calls;
  for (int i = 0; i < 5; ++i) {
    calls.clear();
    calls.push_back(
        std::make_unique<Liveness::CallScope>(first.get(), barrier));
  }
  BeatTwice(*client, {.rank = 1, .state = {.num_calls = 4}});
  client.reset();
  const std::string verdict =
      "rank 1 of 3 (host/1) has lost its connection, as one that died; waited "
      "for in call 5, barrier (step.cc:7), by rank 0";
  EXPECT_EQ(Await(*first), verdict);
  EXPECT_EQ(Await(*third), verdict);
}

// So that there always is one whose answer can find out about a death.
TEST_F(LivenessTest, ABeatIsHeldUntilTheNextOneComes) {
  Liveness::Options never = Quick();
  never.interval = 1h;
  auto first = Make(2, /*is_one_host=*/true, never);
  auto client = MakeClient();
  const auto held = BeatTwice(*client, {.rank = 1});
  EXPECT_EQ(Beat(*client, {.rank = 1, .is_leaving = true}).order,
            LivenessAnswer::Order::kGoOn);
  EXPECT_EQ(client->Wait(held).result, rpc::CallResult::kOk);
}

// Would catch a beat that comes by a new connection and, by the answer to the
// one before, marks its own rank as lost until the next beat.
TEST_F(LivenessTest, ARankThatConnectsAgainIsNotLost) {
  FakeClock clock;
  Liveness::Options options = Quick();
  options.clock = &clock;
  auto first = Make(2, /*is_one_host=*/true, options);
  auto client = MakeClient(/*sender_id=*/7);
  BeatTwice(*client, {.rank = 1});
  // the second beat is held while its connection goes
  client.reset();
  client = MakeClient(/*sender_id=*/7);
  const auto held =
      client->Start(kLivenessBeat, rpc::EncodeMessage(LivenessBeat{.rank = 1}));
  ASSERT_EQ(client->AwaitSession(60s), rpc::CallResult::kOk);
  // answered once a later message of this client is
  EXPECT_EQ(
      client->Call(kLivenessBeat, rpc::EncodeMessage(LivenessBeat{.rank = 9}))
          .result,
      rpc::CallResult::kError);
  for (int i = 0; i < 100; ++i) {
    clock.Advance(100ms);
    EXPECT_EQ(
        client->Call(kLivenessBeat, rpc::EncodeMessage(LivenessBeat{.rank = 9}))
            .result,
        rpc::CallResult::kError);
    if (first->has_verdict()) break;
  }
  EXPECT_EQ(first->verdict(), "");
  EXPECT_EQ(Beat(*client, {.rank = 1, .is_leaving = true}).verdict, "");
  EXPECT_EQ(client->Wait(*held).result, rpc::CallResult::kOk);
}

TEST_F(LivenessTest, ARankThatIsSilentIsNamedAfterTheTimeout) {
  FakeClock clock;
  Liveness::Options options = Quick();
  options.clock = &clock;
  auto first = Make(2, /*is_one_host=*/true, options);
  auto client = MakeClient();
  EXPECT_EQ(Beat(*client, {.rank = 1, .state = {.num_calls = 4}}).order,
            LivenessAnswer::Order::kGoOn);
  EXPECT_EQ(Await(*first, [&] { clock.Advance(100ms); }),
            "rank 1 of 2 (host/1) was not heard of for 60 s; it was past call "
            "4");
  // which it hears if it wakes up
  EXPECT_EQ(Beat(*client, {.rank = 1}).verdict, first->verdict());
}

TEST_F(LivenessTest, RefusesWhoIsNotOfTheGroup) {
  auto first = Make(2);
  auto client = MakeClient();
  const rpc::CallReply reply =
      client->Call(kLivenessBeat, rpc::EncodeMessage(LivenessBeat{.rank = 7}));
  EXPECT_EQ(reply.result, rpc::CallResult::kError);
  EXPECT_EQ(reply.error_text, "liveness: there are 2 ranks, not 7");
  EXPECT_EQ(Beat(*client, {.rank = 1, .is_leaving = true}).order,
            LivenessAnswer::Order::kGoOn);
}

TEST_F(LivenessTest, HostsReachEachOtherByTheirAddresses) {
  if (HostAddresses().empty()) GTEST_SKIP() << "no address but loopback";
  auto first = Make(2, /*is_one_host=*/false);
  auto second = Make(2, /*is_one_host=*/false);
  second->Report("so it is");
  EXPECT_EQ(Await(*first), "so it is");
}

TEST_F(LivenessTest, SaysWhereTheFirstRankCannotBeReached) {
  LivenessAddress address;
  // nobody listens there
  address.endpoints = {"tcp://127.0.0.1:1", "tcp://127.0.0.2:1"};
  address_ = address.Encode();
  num_made_ = 1;
  EXPECT_EQ(MessageOf<CommError>([&] { Make(2); }),
            "liveness: rank 1 of 2 (host/1) cannot reach rank 0 (host/0) at "
            "tcp://127.0.0.1:1, tcp://127.0.0.2:1; hint: let the hosts connect "
            "to each other, or set heartbeat_timeout_s: 0");
}

// A process that stands in a call that cannot be interrupted.
TEST(LivenessDeathTest, WhoDoesNotEndIsEnded) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const Liveness first(
            {.interval = 20ms, .timeout = 200ms, .end_grace = 20ms},
            {0, {"host/0", "host/1"}, true},
            [](const std::string& text) { return text; });
        // the other one never comes
        std::this_thread::sleep_for(1min);
      },
      ::testing::ExitedWithCode(kExitPeerLost), "");
}

}  // namespace
}  // namespace replicant::comm
