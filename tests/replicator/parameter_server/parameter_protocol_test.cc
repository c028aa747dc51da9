#include "replicator/parameter_server/parameter_protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rpc/wire.h"
#include "tests/support/list_fields.h"
#include "tests/support/message_of.h"
#include "tests/support/unwrapped.h"

namespace replicant::replicator {
namespace {

using ::testing::EndsWith;
using testing::MessageOf;

TEST(ParameterProtocolTest, TheTableListsTheFieldsOfTheMessages) {
  EXPECT_THAT(testing::Unwrapped(ParameterServerProtocol().table),
              EndsWith("header: " + testing::ListFields<ServerRequest>() +
                       " reply: " + testing::ListFields<ServerReply>() + " "));
}

TEST(ParameterProtocolTest, RefusesAnUnknownStatus) {
  const ServerReply reply{.status = static_cast<ServerReply::Status>(4)};
  const rpc::Message message = rpc::EncodeMessage(reply);
  EXPECT_EQ(MessageOf<rpc::MalformedMessage>(
                [&] { rpc::DecodeFirstPart<ServerReply>(message); }),
            "parameter_server.reply: field 'status': 4 is not in [0, 3]");
  EXPECT_EQ(MessageOf<rpc::MalformedMessage>(
                [] { rpc::DecodeFirstPart<ServerReply>({}); }),
            "parameter_server.reply: no parts");
}

}  // namespace
}  // namespace replicant::replicator
