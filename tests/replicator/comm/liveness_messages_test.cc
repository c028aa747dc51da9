#include "replicator/comm/liveness_messages.h"

#include <gtest/gtest.h>

#include <span>
#include <string>

#include "base/rpc/wire.h"
#include "tests/support/list_fields.h"
#include "tests/support/message_of.h"
#include "tests/support/unwrapped.h"

namespace replicant::comm {
namespace {

using replicant::testing::MessageOf;
using rpc::MalformedMessage;

TEST(LivenessMessagesTest, ABeatIsReadAsItWasWritten) {
  const LivenessBeat beat{.rank = 3,
                          .state = {.num_calls = 71, .call = "barrier"},
                          .problem = "no memory",
                          .is_leaving = true};
  const LivenessBeat read =
      rpc::DecodeMessage<LivenessBeat>(rpc::EncodeMessage(beat));
  EXPECT_EQ(read.rank, 3U);
  EXPECT_EQ(read.state.num_calls, 71U);
  EXPECT_EQ(read.state.call, "barrier");
  EXPECT_EQ(read.problem, "no memory");
  EXPECT_TRUE(read.is_leaving);
}

TEST(LivenessMessagesTest, AnAnswerIsReadAsItWasWritten) {
  const LivenessAnswer answer{.order = LivenessAnswer::Order::kEnd,
                              .state = {.num_calls = 2, .call = ""},
                              .verdict = "rank 1 is gone"};
  const LivenessAnswer read =
      rpc::DecodeMessage<LivenessAnswer>(rpc::EncodeMessage(answer));
  EXPECT_EQ(read.order, LivenessAnswer::Order::kEnd);
  EXPECT_EQ(read.state.num_calls, 2U);
  EXPECT_EQ(read.verdict, "rank 1 is gone");
}

TEST(LivenessMessagesTest, AnAddressIsReadAsItWasWritten) {
  const LivenessAddress address{
      .endpoints = {"tcp://10.0.0.1:7", "tcp://10.0.1.1:7"},
      .server_public_key = "server",
      .client_keys = {"public", "secret"}};
  const LivenessAddress read = LivenessAddress::Decode(address.Encode());
  EXPECT_EQ(read.endpoints, address.endpoints);
  EXPECT_EQ(read.server_public_key, "server");
  EXPECT_EQ(read.client_keys, address.client_keys);
}

// Somebody's long error must not keep the others from hearing of it.
TEST(LivenessMessagesTest, ALongProblemIsCut) {
  const LivenessBeat beat{.rank = 1, .problem = std::string(1 << 20, 'x')};
  EXPECT_EQ(rpc::DecodeMessage<LivenessBeat>(rpc::EncodeMessage(beat)).problem,
            std::string(1 << 16, 'x'));
}

TEST(LivenessMessagesTest, RefusesWhatBreaksTheForm) {
  EXPECT_EQ(
      MessageOf<MalformedMessage>([] { rpc::DecodeMessage<LivenessBeat>({}); }),
      "liveness.beat: 0 parts, expected 1");
  rpc::Message message;
  message.push_back(rpc::Frame::Copy(std::as_bytes(std::span("\t", 1))));
  EXPECT_EQ(MessageOf<MalformedMessage>(
                [&] { rpc::DecodeMessage<LivenessAnswer>(message); }),
            "liveness.answer: field 'order': 9 is not in [0, 2]");
  EXPECT_THROW(rpc::DecodeMessage<LivenessBeat>(message), MalformedMessage);
  EXPECT_THROW(LivenessAddress::Decode("abc"), MalformedMessage);
  EXPECT_EQ(MessageOf<MalformedMessage>(
                [] { LivenessAddress::Decode(std::string(4, '\x7f')); }),
            "liveness.address: field 'endpoints': 2139062143 is over the limit "
            "of 256");
}

struct State {
  RankState state;

  template <class V>
  void Fields(V& v) {
    StateFields(v, &state);
  }
};

TEST(LivenessMessagesTest, TheTableListsTheFieldsOfTheMessages) {
  const std::string state = replicant::testing::ListFields<State>();
  // the table names the state
  const auto fields = [&](std::string text) {
    return text.replace(text.find(state), state.size(), "state");
  };
  EXPECT_EQ(replicant::testing::Unwrapped(LivenessProtocol().table),
            "liveness 1 1 beat request: " +
                fields(replicant::testing::ListFields<LivenessBeat>()) +
                " reply: " +
                fields(replicant::testing::ListFields<LivenessAnswer>()) +
                " state: " + state + " ");
}

}  // namespace
}  // namespace replicant::comm
