#include "fleet/port_claim.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/rpc/socket.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using testing::MessageOf;

TEST(PortClaimTest, KnowsAnEndpointOfAnyPort) {
  EXPECT_TRUE(IsOfAnyPort("tcp://127.0.0.1:*"));
  for (const char* const endpoint :
       {"tcp://127.0.0.1:7001", "tcp://:*", "ipc://a:*", "auto", ""}) {
    EXPECT_FALSE(IsOfAnyPort(endpoint)) << endpoint;
  }
}

// A role that is started again finds its port free, however often.
TEST(PortClaimTest, AServiceListensAtAClaimedPortAgainAndAgain) {
  const PortClaim claim("tcp://127.0.0.1:*");
  for (int i = 0; i < 3; ++i) {
    rpc::ZmqContext context;
    rpc::ZmqSocket service(context, rpc::SocketType::kRouter);
    EXPECT_EQ(service.Bind(claim.endpoint()), claim.endpoint());
  }
}

// Would catch two runs that are given one port.
TEST(PortClaimTest, NobodyElseIsGivenAClaimedPort) {
  std::vector<PortClaim> claims;
  std::set<std::string> endpoints;
  for (int i = 0; i < 200; ++i) {
    claims.emplace_back("tcp://127.0.0.1:*");
    endpoints.insert(claims.back().endpoint());
  }
  rpc::ZmqContext context;
  rpc::ZmqSocket other(context, rpc::SocketType::kRouter);
  for (int i = 0; i < 50; ++i)
    endpoints.insert(other.Bind("tcp://127.0.0.1:*"));
  EXPECT_EQ(endpoints.size(), 250u);
}

TEST(PortClaimTest, RefusesAnAddressThatIsNotOneOfThisHost) {
  EXPECT_EQ(MessageOf<ConfigError>([] { PortClaim("tcp://host.example:*"); }),
            "tcp://host.example:*: give the numeric address of a network "
            "interface, such as 10.0.0.2: other processes connect to it");
  EXPECT_EQ(MessageOf<ConfigError>([] { PortClaim("tcp://203.0.113.1:*"); }),
            "tcp://203.0.113.1:*: Cannot assign requested address");
}

}  // namespace
}  // namespace replicant::fleet
