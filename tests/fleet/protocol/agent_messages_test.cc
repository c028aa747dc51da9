#include "fleet/protocol/agent_messages.h"

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"
#include "base/rpc/wire.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;

// Would catch a field that one side writes and the other does not read.
TEST(AgentMessagesTest, EveryMessageComesBackAsItWas) {
  const JoinRequest join{.agent = 7,
                         .host = "node 3",
                         .role = "replay",
                         .processors = 8,
                         .slots = 2};
  EXPECT_EQ(JoinRequest::Decode(join.Encode()), join);
  const StopRequest stop{"fleet --stop of node/7"};
  EXPECT_EQ(rpc::DecodeMessage<StopRequest>(rpc::EncodeMessage(stop)), stop);
  const ScaleRequest scale{"fleet --scale of node/7", "actor", 200};
  EXPECT_EQ(rpc::DecodeMessage<ScaleRequest>(rpc::EncodeMessage(scale)), scale);
  const ScaleReply scaled{.refusal = "too many", .previous = 3};
  EXPECT_EQ(rpc::DecodeMessage<ScaleReply>(rpc::EncodeMessage(scaled)), scaled);

  const JoinReply joined{.refusal = "full",
                         .timeout_s = 2.5,
                         .files = {{"config.yaml", "a: 1\n"},
                                   {"model/a.xml", std::string("\0x", 2)}}};
  EXPECT_EQ(rpc::DecodeMessage<JoinReply>(rpc::EncodeMessage(joined)), joined);

  const AgentReport report{.agent = 7,
                           .is_leaving = true,
                           .last_order = 9,
                           .processes = {{.id = {"actor", 3}, .incarnation = 2},
                                         {.id = {"actor", 4},
                                          .incarnation = 1,
                                          .has_ended = true,
                                          .code = -1,
                                          .signal = 9}},
                           .logs = {{.id = {"actor", 3},
                                     .incarnation = 2,
                                     .offset = uint64_t{1} << 40,
                                     .bytes = "line\n"}}};
  EXPECT_EQ(rpc::DecodeMessage<AgentReport>(rpc::EncodeMessage(report)),
            report);

  const ReportReply reply{.verdict = ReportReply::Verdict::kLeave,
                          .reason = "over",
                          .orders = {{.number = 3,
                                      .kind = AgentOrder::Kind::kSignal,
                                      .id = {"actor", 3},
                                      .incarnation = 2,
                                      .signal = 15,
                                      .arguments = {"--set", "a=b c"}}},
                          .takes_logs = false};
  EXPECT_EQ(rpc::DecodeMessage<ReportReply>(rpc::EncodeMessage(reply)), reply);
}

// Would catch a launcher that writes outside an agent's folder.
TEST(AgentMessagesTest, NoFileLeadsOutOfTheFolder) {
  for (const char* const path : {"", "/etc/passwd", "../x", "a/../../x"}) {
    const JoinReply reply{.refusal = {}, .files = {{path, "x"}}};
    EXPECT_EQ(MessageOf<rpc::MalformedMessage>([&] {
                rpc::DecodeMessage<JoinReply>(rpc::EncodeMessage(reply));
              }),
              "supervision.join reply: field 'path' leads out of the agent's "
              "folder")
        << path;
  }
}

TEST(AgentMessagesTest, BrokenFieldsAreNamed) {
  rpc::WireWriter writer;
  writer.Write(uint64_t{1});
  writer.WriteBool(false);
  writer.Write(uint64_t{0});
  writer.Write(uint32_t{1'000'000});
  const rpc::Message message = rpc::MakeMessage(writer.Finish());
  EXPECT_EQ(
      MessageOf<rpc::MalformedMessage>(
          [&] { rpc::DecodeMessage<AgentReport>(message); }),
      "supervision.report: field 'num_processes': 1000000 is over the limit of "
      "10000");
  EXPECT_EQ(MessageOf<InvalidArgument>([] {
              static_cast<void>(JoinRequest{.agent = 1, .host = ""}.Encode());
            }),
            "JoinRequest: a host's name of 0 bytes; want 1 to 256");
}

}  // namespace
}  // namespace replicant::fleet
