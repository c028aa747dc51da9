#include "fleet/protocol/heartbeat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "base/rpc/wire.h"
#include "fleet/protocol/agent_messages.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "fleet/protocol/heartbeat_sender.h"
#include "tests/base/rpc/running_server.h"
#include "tests/support/list_fields.h"
#include "tests/support/message_of.h"
#include "tests/support/own_address.h"
#include "tests/support/unwrapped.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;
using rpc::testing::RunningServer;
using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

Heartbeat SampleBeat() {
  Heartbeat beat;
  beat.id = {"actor", 3};
  beat.incarnation = 2;
  beat.pid = 4711;
  beat.state = RoleState::kWaiting;
  beat.reason = "replay: 80 % of the inserts wait";
  beat.waiting_s = 1.5;
  beat.endpoint = "tcp://10.0.0.7:41234";
  beat.numbers = {{"env_steps", {BeatNumber::Kind::kCounter, 1e6}},
                  {"return", {BeatNumber::Kind::kGauge, -0.25}}};
  return beat;
}

// Waits until `condition` holds; the message says what was waited for.
void Await(const std::function<bool()>& condition, const char* what) {
  const auto deadline = Clock::Real().Now() + seconds(60);
  while (!condition()) {
    ASSERT_LT(Clock::Real().Now(), deadline) << what;
    std::this_thread::sleep_for(milliseconds(1));
  }
}

TEST(HeartbeatTest, BodiesReadBackAsWritten) {
  const Heartbeat beat = SampleBeat();
  EXPECT_EQ(Heartbeat::Decode(beat.Encode()), beat);
  EXPECT_EQ(Heartbeat::Decode(Heartbeat().Encode()), Heartbeat());
  const BeatReply reply = {BeatReply::Order::kStop,
                           "the run is complete",
                           {{{"server", 1}, "tcp://10.0.0.7:41234"}}};
  EXPECT_EQ(rpc::DecodeMessage<BeatReply>(rpc::EncodeMessage(reply)), reply);
  EXPECT_EQ(beat.id.ToString(), "actor-3");
}

// A reason ends up in one line of a terminal.
TEST(HeartbeatTest, AReasonIsOneLineCutBetweenCharacters) {
  Heartbeat beat = SampleBeat();
  beat.reason = "two\nlines\x1b[2J";
  EXPECT_EQ(Heartbeat::Decode(beat.Encode()).reason, "two lines [2J");
  // 255 bytes, then a character of two
  beat.reason = std::string(255, 'x') + "\u00e9";
  EXPECT_EQ(Heartbeat::Decode(beat.Encode()).reason, std::string(255, 'x'));
  beat.reason = std::string(254, 'x') + "\u00e9";
  EXPECT_EQ(Heartbeat::Decode(beat.Encode()).reason, beat.reason);
}

TEST(HeartbeatTest, EncodeRefusesFieldsThatBreakTheirForm) {
  const auto problem = [](const std::function<void(Heartbeat&)>& spoil) {
    Heartbeat beat = SampleBeat();
    spoil(beat);
    return MessageOf<InvalidArgument>([&] { beat.Encode(); });
  };
  EXPECT_EQ(problem([](Heartbeat& b) { b.id.role = "Actor"; }),
            "Heartbeat: field 'role' is not of the form [a-z0-9_-]{1,32}");
  EXPECT_EQ(problem([](Heartbeat& b) { b.incarnation = 0; }),
            "Heartbeat: field 'incarnation' must not be 0");
  EXPECT_EQ(problem([](Heartbeat& b) { b.waiting_s = NAN; }),
            "Heartbeat: field 'waiting_s': nan is not finite and >= 0");
  EXPECT_EQ(problem([](Heartbeat& b) { b.numbers["a b"] = {}; }),
            "Heartbeat: field 'name' is not of the form "
            "[A-Za-z0-9_./-]{1,64}");
  EXPECT_EQ(problem([](Heartbeat& b) {
              for (int i = 0; i < 300; ++i) b.numbers[std::to_string(i)] = {};
            }),
            "Heartbeat: field 'num_numbers': 302 is over the limit of 256");
}

TEST(HeartbeatTest, DecodeRefusesWhatNoSenderWrites) {
  // the fields of a good message, of which each case replaces one
  struct Fields {
    std::string role = "actor";
    uint8_t state = 1;
    std::string reason;
    std::vector<std::string> names = {"a", "b"};
    uint8_t kind = 0;
    std::string rest;
  };
  const auto problem = [](const Fields& fields) {
    rpc::WireWriter writer;
    writer.WriteString(fields.role);
    writer.Write(uint32_t{0});
    writer.Write(uint32_t{1});
    writer.Write(uint32_t{0});
    writer.Write(fields.state);
    writer.WriteString(fields.reason);
    writer.Write(0.0);
    writer.WriteString("");
    writer.Write(static_cast<uint32_t>(fields.names.size()));
    for (const std::string& name : fields.names) {
      writer.WriteString(name);
      writer.Write(fields.kind);
      writer.Write(1.0);
    }
    for (const char c : fields.rest) writer.Write(c);
    const rpc::Message payload = rpc::MakeMessage(writer.Finish());
    return MessageOf<rpc::MalformedMessage>(
        [&] { Heartbeat::Decode(payload); });
  };
  EXPECT_EQ(problem({}), "no exception");
  EXPECT_EQ(problem({.role = ""}),
            "supervision.beat: field 'role' is not of the form "
            "[a-z0-9_-]{1,32}");
  EXPECT_EQ(problem({.state = 4}),
            "supervision.beat: field 'state': 4 is not in [0, 3]");
  EXPECT_EQ(problem({.reason = "a\tb"}),
            "supervision.beat: field 'reason' has control characters");
  EXPECT_EQ(problem({.names = {"b", "b"}}),
            "supervision.beat: field 'name' is not in ascending order");
  EXPECT_EQ(problem({.kind = 2}),
            "supervision.beat: field 'kind': 2 is not in [0, 1]");
  EXPECT_NE(problem({.rest = "x"}), "no exception");
  EXPECT_EQ(MessageOf<rpc::MalformedMessage>(
                [] { Heartbeat::Decode(rpc::Message{}); }),
            "supervision.beat: 0 parts, expected 1");
  rpc::WireWriter writer;
  writer.Write(uint8_t{2});
  writer.WriteString("");
  const rpc::Message reply = rpc::MakeMessage(writer.Finish());
  EXPECT_EQ(MessageOf<rpc::MalformedMessage>(
                [&] { rpc::DecodeMessage<BeatReply>(reply); }),
            "supervision.beat reply: field 'order': 2 is not in [0, 1]");
}

TEST(HeartbeatTest, TheTableListsTheFieldsOfTheMessages) {
  const auto kind = [](const std::string& name, const std::string& request,
                       const std::string& reply) {
    return fmt::format("{} request: {} reply: {} ", name, request, reply);
  };
  using testing::ListFields;
  EXPECT_EQ(
      testing::Unwrapped(SupervisionProtocol().table),
      "supervision 5 " +
          kind("1 beat", ListFields<Heartbeat>(), ListFields<BeatReply>()) +
          kind("2 join", ListFields<JoinRequest>(), ListFields<JoinReply>()) +
          kind("3 report", ListFields<AgentReport>(),
               ListFields<ReportReply>()) +
          kind("4 stop", ListFields<StopRequest>(), "no part") +
          kind("5 scale", ListFields<ScaleRequest>(),
               ListFields<ScaleReply>()));
}

TEST(HeartbeatTest, ThePageHoldsTheMessageTable) {
  const std::string page =
      ReadFile(std::filesystem::path(REPLICANT_SOURCE_DIR) / "docs/rpc.md");
  EXPECT_NE(
      page.find("```\n" + std::string(SupervisionProtocol().table) + "```"),
      std::string::npos);
  const std::string hash =
      fmt::format("{:#018x}", SupervisionProtocol().schema_hash);
  EXPECT_NE(page.find(hash), std::string::npos) << hash;
}

TEST(HeartbeatMonitorTest, KeepsTheLatestOfEachExpectedRole) {
  FakeClock clock;
  HeartbeatMonitor monitor(clock);
  monitor.Expect({"actor", 3}, 2);
  monitor.Expect({"replay", 0}, 1);
  EXPECT_EQ(monitor.Latest({"actor", 3}), std::nullopt);
  EXPECT_TRUE(monitor.All().empty());

  clock.Advance(seconds(5));
  Heartbeat beat = SampleBeat();
  beat.endpoint.clear();
  EXPECT_EQ(monitor.Receive(beat), BeatReply());
  clock.Advance(seconds(1));
  beat.waiting_s = 2.0;
  EXPECT_EQ(monitor.Receive(beat), BeatReply());
  const auto latest = monitor.Latest({"actor", 3});
  ASSERT_TRUE(latest.has_value());
  EXPECT_EQ(latest->beat, beat);
  EXPECT_EQ(latest->time, clock.Now());
  EXPECT_EQ(monitor.All().size(), 1u);

  monitor.OrderStop({"actor", 3}, "the run is complete");
  EXPECT_EQ(monitor.Receive(beat),
            (BeatReply{BeatReply::Order::kStop, "the run is complete"}));
}

// Would catch a loop that misses a heartbeat, or takes the same one in twice.
TEST(HeartbeatMonitorTest, ACursorGetsWhatIsNew) {
  HeartbeatMonitor monitor;
  const auto send = [&](uint32_t index, double waiting_s) {
    Heartbeat beat;
    beat.id = {"actor", index};
    beat.waiting_s = waiting_s;
    monitor.Receive(beat);
  };
  for (uint32_t i = 0; i < 3; ++i) monitor.Expect({"actor", i}, 1);
  uint64_t cursor = 0;
  EXPECT_TRUE(monitor.NewSince(&cursor).empty());
  send(2, 1.0);
  send(0, 1.0);
  send(2, 2.0);
  uint64_t other = 0;
  const auto first = monitor.NewSince(&cursor);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].beat.id.index, 0u);
  EXPECT_EQ(first[1].beat.waiting_s, 2.0);
  EXPECT_TRUE(monitor.NewSince(&cursor).empty());
  send(1, 1.0);
  // another process has the place of actor 2
  monitor.Expect({"actor", 2}, 1);
  EXPECT_EQ(monitor.NewSince(&cursor).size(), 1u);
  const auto all = monitor.NewSince(&other);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].beat.id.index, 1u);
}

// Would catch a process that was given up for dead and speaks for the one that
// was started in its place.
TEST(HeartbeatMonitorTest, TellsTheReplacedAndTheUnknownToStop) {
  HeartbeatMonitor monitor;
  monitor.Expect({"actor", 3}, 2);
  EXPECT_EQ(monitor.Receive(SampleBeat()).order, BeatReply::Order::kGoOn);
  monitor.Expect({"actor", 3}, 3);
  EXPECT_EQ(monitor.Receive(SampleBeat()),
            (BeatReply{BeatReply::Order::kStop,
                       "incarnation 3 has taken its place"}));
  EXPECT_EQ(monitor.Latest({"actor", 3}), std::nullopt);
  Heartbeat stranger = SampleBeat();
  stranger.id.index = 4;
  EXPECT_EQ(
      monitor.Receive(stranger),
      (BeatReply{BeatReply::Order::kStop, "this supervisor has no such role"}));
}

// Would catch a role that is sent to where another one has been.
TEST(HeartbeatMonitorTest, TellsWhereTheRolesThatRunListen) {
  HeartbeatMonitor monitor;
  monitor.Expect({"server", 1}, 1);
  monitor.Expect({"actor", 3}, 2);
  const auto told = [&] {
    Heartbeat actor = SampleBeat();
    actor.endpoint.clear();
    std::vector<std::string> endpoints;
    for (const RoleEndpoint& one : monitor.Receive(actor).endpoints) {
      endpoints.push_back(one.id.ToString() + " " + one.endpoint);
    }
    return endpoints;
  };
  using Endpoints = std::vector<std::string>;
  Heartbeat server;
  server.id = {"server", 1};
  monitor.Receive(server);
  EXPECT_EQ(told(), Endpoints());
  server.endpoint = "tcp://10.0.0.7:1";
  monitor.Receive(server);
  EXPECT_EQ(told(), Endpoints{"server-1 tcp://10.0.0.7:1"});
  monitor.NoteEnd({"server", 1});
  EXPECT_EQ(told(), Endpoints());
  // its last heartbeat was still on its way
  monitor.Receive(server);
  EXPECT_EQ(told(), Endpoints());
  monitor.Expect({"server", 1}, 2);
  EXPECT_EQ(told(), Endpoints());
  monitor.Receive(server);
  EXPECT_EQ(told(), Endpoints());
  server.incarnation = 2;
  server.endpoint = "tcp://10.0.0.8:1";
  monitor.Receive(server);
  EXPECT_EQ(told(), Endpoints{"server-1 tcp://10.0.0.8:1"});
}

class HeartbeatSenderTest : public ::testing::Test {
 protected:
  HeartbeatSenderTest() { monitor_.Expect(kId, 1); }

  void StartSupervisor(
      const std::string& address = replicant::testing::OwnAddress()) {
    server_.emplace(SupervisionProtocol(), address,
                    [this](rpc::Server& server) { monitor_.AttachTo(server); });
  }
  HeartbeatSenderOptions Options(Clock::Duration interval) {
    return {.endpoint = server_->endpoint(), .id = kId, .interval = interval};
  }
  bool Is(RoleState state) {
    const auto latest = monitor_.Latest(kId);
    return latest && latest->beat.state == state;
  }

  // The last reported env_steps; -1: nothing.
  double LastCount() {
    const auto latest = monitor_.Latest(kId);
    if (!latest || !latest->beat.numbers.contains("env_steps")) return -1.0;
    return latest->beat.numbers.at("env_steps").value;
  }

  const RoleId kId = {"actor", 7};
  HeartbeatMonitor monitor_;
  std::optional<RunningServer> server_;
};

// With an hour between heartbeats only news can make the sender speak.
TEST_F(HeartbeatSenderTest, SaysAtOnceThatItRunsOrDrains) {
  StartSupervisor();
  HeartbeatSender sender(Options(hours(1)));
  Await([&] { return Is(RoleState::kStarting); }, "the first heartbeat");
  sender.SetCounter("env_steps", 10);
  sender.SetGauge("return", 0.5);
  sender.SetState(RoleState::kRunning);
  Await([&] { return Is(RoleState::kRunning); }, "running");
  const Heartbeat beat = monitor_.Latest(kId)->beat;
  EXPECT_EQ(beat.pid, static_cast<uint32_t>(::getpid()));
  EXPECT_EQ(beat.numbers.at("env_steps"),
            (BeatNumber{BeatNumber::Kind::kCounter, 10}));
  EXPECT_EQ(beat.numbers.at("return"),
            (BeatNumber{BeatNumber::Kind::kGauge, 0.5}));
  sender.SetState(RoleState::kDraining, "asked to");
  Await([&] { return Is(RoleState::kDraining); }, "draining");
  EXPECT_EQ(monitor_.Latest(kId)->beat.reason, "asked to");
}

TEST_F(HeartbeatSenderTest, TellsHowLongItWaitedAndWhy) {
  StartSupervisor();
  HeartbeatSender sender(Options(milliseconds(1)));
  sender.SetState(RoleState::kWaiting, "no data");
  Await([&] { return Is(RoleState::kWaiting); }, "waiting");
  EXPECT_EQ(monitor_.Latest(kId)->beat.reason, "no data");
  Await([&] { return monitor_.Latest(kId)->beat.waiting_s > 0.0; }, "seconds");
  sender.SetState(RoleState::kRunning);
  Await([&] { return Is(RoleState::kRunning); }, "running");
  const double waited_s = monitor_.Latest(kId)->beat.waiting_s;
  EXPECT_GT(waited_s, 0.0);
  // told once, then the wait is past; the time stands still
  Await([&] { return monitor_.Latest(kId)->beat.reason.empty(); }, "no reason");
  EXPECT_EQ(monitor_.Latest(kId)->beat.waiting_s, waited_s);
}

TEST_F(HeartbeatSenderTest, TellsOfWaitsThatTheRoleMeasured) {
  StartSupervisor();
  HeartbeatSender sender(Options(milliseconds(1)));
  sender.SetState(RoleState::kRunning);
  sender.SetWaited(2.5, "no room");
  Await([&] { return Is(RoleState::kRunning); }, "running");
  Await([&] { return monitor_.Latest(kId)->beat.waiting_s > 0.0; }, "seconds");
  EXPECT_EQ(monitor_.Latest(kId)->beat.waiting_s, 2.5);
}

TEST_F(HeartbeatSenderTest, HearsThatItShallStop) {
  StartSupervisor();
  HeartbeatSender sender(Options(milliseconds(1)));
  Await([&] { return Is(RoleState::kStarting); }, "the first heartbeat");
  EXPECT_EQ(sender.StopOrder(), std::nullopt);
  monitor_.OrderStop(kId, "the run is complete");
  Await([&] { return sender.StopOrder().has_value(); }, "the order");
  EXPECT_EQ(sender.StopOrder(), "the run is complete");
}

TEST_F(HeartbeatSenderTest, TellsItsEndpointAndHearsThoseOfOthers) {
  StartSupervisor();
  HeartbeatSender sender(Options(milliseconds(1)));
  Await([&] { return Is(RoleState::kStarting); }, "the first heartbeat");
  EXPECT_EQ(sender.EndpointOf(kId), "");
  sender.SetEndpoint("tcp://10.0.0.7:1");
  Await([&] { return sender.EndpointOf(kId) == "tcp://10.0.0.7:1"; },
        "the endpoint");
  EXPECT_EQ(sender.EndpointOf({"actor", 8}), "");
  monitor_.NoteEnd(kId);
  Await([&] { return sender.EndpointOf(kId).empty(); }, "its end");
}

TEST_F(HeartbeatSenderTest, SendsItsLastNumbersWhenItEnds) {
  StartSupervisor();
  {
    HeartbeatSender sender(Options(hours(1)));
    Await([&] { return Is(RoleState::kStarting); }, "the first heartbeat");
    sender.SetCounter("env_steps", 99);
  }
  Await([&] { return LastCount() == 99; }, "the last numbers");
}

TEST_F(HeartbeatSenderTest, OutlivesItsSupervisorAndFindsTheNextOne) {
  StartSupervisor();
  HeartbeatSender sender(Options(milliseconds(5)));
  Await([&] { return Is(RoleState::kStarting); }, "the first heartbeat");
  const std::string address = server_->endpoint();
  server_.reset();
  for (int i = 0; i < 1000; ++i) sender.SetCounter("env_steps", i);
  monitor_.Expect(kId, 1);
  StartSupervisor(address);
  Await([&] { return LastCount() == 999; }, "the next one");
}

TEST_F(HeartbeatSenderTest, WithoutASupervisorNothingIsSent) {
  HeartbeatSender silent({.endpoint = "", .id = kId});
  silent.SetState(RoleState::kRunning);
  EXPECT_EQ(silent.StopOrder(), std::nullopt);
  // nobody listens there
  HeartbeatSender lonely({.endpoint = "tcp://127.0.0.1:1", .id = kId});
  lonely.SetState(RoleState::kRunning);
}

TEST_F(HeartbeatSenderTest, RefusesWhatCannotBeSent) {
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [] { HeartbeatSender sender({.id = {"No"}}); }),
            "heartbeat: role 'No' is not of the form [a-z0-9_-]{1,32}");
  EXPECT_THROW(HeartbeatSender({.endpoint = "nonsense", .id = kId}), CommError);
  HeartbeatSender sender({.id = kId});
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { sender.SetGauge("a b", 1); }),
            "heartbeat: name 'a b' is not of the form [A-Za-z0-9_./-]{1,64}");
  for (int i = 0; i < 256; ++i) sender.SetGauge(std::to_string(i), i);
  sender.SetGauge("255", 1);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { sender.SetGauge("more", 1); }),
            "heartbeat: number 'more' is over the limit of 256 numbers");
}

TEST_F(HeartbeatSenderTest, FindsItselfInTheEnvironment) {
  const HeartbeatSenderOptions given = {.endpoint = "tcp://127.0.0.1:7",
                                        .id = {"evaluator", 2},
                                        .incarnation = 5};
  for (const std::string& variable : given.ToEnvironment()) {
    const size_t equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(),
             variable.substr(equals + 1).c_str(), /*overwrite=*/1);
  }
  const auto read = [] {
    return HeartbeatSenderOptions::FromEnvironment({.id = {"actor", 9}});
  };
  EXPECT_EQ(read().endpoint, given.endpoint);
  EXPECT_EQ(read().id, given.id);
  EXPECT_EQ(read().incarnation, 5u);
  ::setenv("REPLICANT_ROLE_INDEX", "2x", 1);
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { read(); }),
            "environment: REPLICANT_ROLE_INDEX: want a whole number >= 0, got "
            "'2x'");
  for (const char* name : {"REPLICANT_SUPERVISOR", "REPLICANT_ROLE",
                           "REPLICANT_ROLE_INDEX", "REPLICANT_INCARNATION"}) {
    ::unsetenv(name);
  }
  EXPECT_EQ(read().id, (RoleId{"actor", 9}));
  EXPECT_EQ(read().incarnation, 1u);
}

}  // namespace
}  // namespace replicant::fleet
