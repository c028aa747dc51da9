#include "programs/run/role_endpoint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "base/error.h"
#include "fleet/protocol/heartbeat_monitor.h"
#include "tests/base/rpc/running_server.h"
#include "tests/support/message_of.h"
#include "tests/support/own_address.h"

namespace replicant::programs {
namespace {

using replicant::testing::MessageOf;
using replicant::testing::OwnAddress;
using rpc::testing::RunningServer;
using namespace std::chrono_literals;

RunConfig Load(const std::string& servers) {
  return LoadRunConfig(
             config::Document::FromText(
                 "run.yaml",
                 "task: {name: cartpole-swingup}\n"
                 "learner: {replication: {strategy: parameter_server, servers: "
                 "[" +
                     servers +
                     "]}}\n"
                     "cluster: {backend: slurm, servers_on_hosts: true}\n"),
             Registry::BuiltIn())
      .config;
}

// Would catch a server that listens where nobody looks for it.
TEST(RoleEndpointTest, ARoleFindsTheAddressThatAnotherHasChosen) {
  fleet::HeartbeatMonitor monitor;
  const fleet::RoleId server{"server", 1};
  const fleet::RoleId learner{"learner", 0};
  monitor.Expect(server, 1);
  monitor.Expect(learner, 1);
  const RunningServer supervisor(
      fleet::SupervisionProtocol(), OwnAddress(),
      [&](rpc::Server& one) { monitor.AttachTo(one); });
  const auto options = [&](const fleet::RoleId& id) {
    return fleet::HeartbeatSenderOptions{
        .endpoint = supervisor.endpoint(), .id = id, .interval = 1ms};
  };
  RunConfig config = Load("\"tcp://10.0.0.2:7\", auto");
  fleet::HeartbeatSender at_learner(options(learner));
  const auto find = FindEndpoint(server, options(learner), &at_learner, config);
  EXPECT_EQ(
      FindEndpoint({"server", 0}, options(learner), &at_learner, config)(),
      "tcp://10.0.0.2:7");
  EXPECT_EQ(find(), "");
  std::string chosen;
  {
    fleet::HeartbeatSender at_server(options(server));
    const auto port =
        ChooseEndpoint(server, options(server), &at_server, &config);
    ASSERT_TRUE(port.has_value());
    chosen = port->endpoint();
    EXPECT_EQ(config.learner.replication.servers[1], chosen);
    // the supervisor's address on loopback
    const std::string& endpoint = supervisor.endpoint();
    EXPECT_TRUE(chosen.starts_with(endpoint.substr(0, endpoint.rfind(':') + 1)))
        << chosen;
    const auto deadline = Clock::Real().Now() + 60s;
    while (find().empty() && Clock::Real().Now() < deadline) {
      std::this_thread::sleep_for(1ms);
    }
  }
  EXPECT_EQ(find(), chosen);
}

TEST(RoleEndpointTest, AnAddressThatTheConfigurationGivesStays) {
  RunConfig config = Load("\"tcp://10.0.0.2:7\"");
  const fleet::HeartbeatSenderOptions alone{.id = {"server", 0}};
  fleet::HeartbeatSender heartbeat(alone);
  EXPECT_FALSE(ChooseEndpoint(alone.id, alone, &heartbeat, &config));
  EXPECT_EQ(FindEndpoint(alone.id, alone, &heartbeat, config)(),
            "tcp://10.0.0.2:7");
}

// Would catch a process that waits for ever for an address.
TEST(RoleEndpointTest, WithoutAFleetNobodyTellsAnAddress) {
  RunConfig config = Load("auto");
  const fleet::HeartbeatSenderOptions alone{.id = {"server", 0}};
  fleet::HeartbeatSender heartbeat(alone);
  const std::string message =
      "learner.replication.servers: 'auto', but another host joins for it and "
      "no fleet has started this process, to tell it the address; want that "
      "host's tcp://HOST:PORT";
  EXPECT_EQ(MessageOf<ConfigError>(
                [&] { ChooseEndpoint(alone.id, alone, &heartbeat, &config); }),
            message);
  EXPECT_EQ(MessageOf<ConfigError>(
                [&] { FindEndpoint(alone.id, alone, &heartbeat, config); }),
            message);
}

}  // namespace
}  // namespace replicant::programs
