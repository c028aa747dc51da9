#include "replicator/comm/host_addresses.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "base/rpc/socket.h"

namespace replicant::comm {
namespace {

using namespace std::chrono_literals;

TEST(HostAddressesTest, FindsOutWhatIsReachable) {
  rpc::ZmqContext context;
  rpc::ZmqSocket socket(context, rpc::SocketType::kRouter);
  const std::string endpoint = socket.Bind("tcp://127.0.0.1:*");
  const int port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
  EXPECT_TRUE(IsReachable("127.0.0.1", port, 10s));
  // nobody listens there, and this is no address
  EXPECT_FALSE(IsReachable("127.0.0.1", 1, 10s));
  EXPECT_FALSE(IsReachable("no address", port, 10s));
}

TEST(HostAddressesTest, AddressesAreNumbersOfOtherHosts) {
  for (const std::string& address : HostAddresses()) {
    EXPECT_EQ(address.find_first_not_of("0123456789abcdef.:"),
              std::string::npos)
        << address;
    EXPECT_FALSE(address.starts_with("127.")) << address;
  }
  EXPECT_EQ(NetworkName(), NetworkName());
}

}  // namespace
}  // namespace replicant::comm
