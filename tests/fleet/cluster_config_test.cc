#include "fleet/cluster_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/config/edit.h"
#include "base/config/load.h"
#include "base/error.h"
#include "base/fs.h"
#include "tests/support/message_of.h"

namespace replicant::fleet {
namespace {

using replicant::testing::MessageOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClusterConfig Load(const std::string& yaml) {
  return config::Load<ClusterConfig>(
             config::Document::FromText("cluster.yaml", yaml))
      .config;
}

TEST(ClusterConfigTest, HostsAndRolesAreRead) {
  const ClusterConfig c = Load(
      "backend: ssh\n"
      "hosts: [{name: a, actors: 3}, {name: me@b}]\n"
      "roles: {actor: {cores: 2, command: \"nice {command}\"}}\n");
  EXPECT_TRUE(c.has_hosts());
  EXPECT_EQ(c.hosts[0].actors, 3);
  EXPECT_EQ(c.hosts[1].name, "me@b");
  EXPECT_EQ(c.roles.at("actor").cores, 2);
  EXPECT_EQ(c.roles.at("learner").cores, 4);
  EXPECT_FALSE(Load("{}").has_hosts());
}

// Would catch a limit on files that a run's own config.yaml exceeds.
TEST(ClusterConfigTest, AResolvedConfigurationOfManyHostsIsReadBack) {
  std::string yaml = "backend: ssh\nhosts:\n";
  for (int i = 0; i < 3000; ++i) yaml += fmt::format("- name: host{}\n", i);
  const std::string resolved =
      config::Load<ClusterConfig>(
          config::Document::FromText("cluster.yaml", yaml))
          .resolved_yaml;
  EXPECT_GT(resolved.size(), size_t{256} << 10);
  const TemporaryFolder folder;
  const auto file = folder.path() / "config.yaml";
  AtomicWriteFile(file, config::WithValue(resolved, "port", 7));
  const auto read =
      config::Load<ClusterConfig>(config::Document::FromFile(file)).config;
  EXPECT_EQ(read.port, 7);
  ASSERT_EQ(read.hosts.size(), 3000u);
  EXPECT_EQ(read.hosts[2999].name, "host2999");
}

TEST(ClusterConfigTest, MistakesAreNamed) {
  EXPECT_THAT(MessageOf<ConfigError>([] { Load("backend: ssh\n"); }),
              HasSubstr("must name the hosts of the actors with backend ssh"));
  // ssh would take it for an option
  EXPECT_THAT(MessageOf<ConfigError>(
                  [] { Load("hosts: [{name: -oProxyCommand=x}]\n"); }),
              HasSubstr("'-oProxyCommand=x' is not the name of a host"));
  EXPECT_THAT(
      MessageOf<ConfigError>([] { Load("hosts: [{name: a}, {name: a}]\n"); }),
      HasSubstr("'a' is given twice"));
  EXPECT_THAT(MessageOf<ConfigError>([] { Load("slurm: {options: [x]}\n"); }),
              HasSubstr("'x' is not of the form --NAME=VALUE"));
  EXPECT_THAT(MessageOf<ConfigError>([] {
                Load("hosts: [{name: a, server_address: \"tcp://b:1\"}]\n");
              }),
              HasSubstr("server_folder: and server_address must be given "
                        "together"));
}

// Would catch a part that another backend's hosts take.
TEST(ClusterConfigTest, PartsRunOnTheHostsOfSshAlone) {
  const std::string hosts =
      "hosts: [{name: a, worker: true}, {name: b, inference_address: "
      "\"tcp://b:1\"}, {name: c, server_address: \"tcp://c:1\", server_folder: "
      "/d}]\n";
  const ClusterConfig ssh = Load("backend: ssh\n" + hosts);
  EXPECT_TRUE(ssh.has_remote_workers());
  EXPECT_TRUE(ssh.has_remote_servers());
  EXPECT_TRUE(ssh.has_remote_inference());
  EXPECT_FALSE(ssh.has_remote_replay());
  const ClusterConfig slurm = Load("backend: slurm\n" + hosts);
  EXPECT_FALSE(slurm.has_remote_workers());
  EXPECT_FALSE(slurm.has_remote_servers());
  EXPECT_FALSE(slurm.has_remote_inference());
  EXPECT_TRUE(
      Load("backend: slurm\nworkers_on_hosts: true\n").has_remote_workers());
}

TEST(FillTemplateTest, CommandAndHostAreFilledIn) {
  EXPECT_THAT(FillTemplate("", {"a", "b"}), ElementsAre("a", "b"));
  EXPECT_THAT(FillTemplate("srun --overlap {command} -v", {"a", "b c"}),
              ElementsAre("srun", "--overlap", "a", "b c", "-v"));
  EXPECT_THAT(FillTemplate("ssh root@{host}", {"a"}, "h"),
              ElementsAre("ssh", "root@h", "a"));
}

TEST(ResolveClusterAddressTest, TakesNumbersAlone) {
  EXPECT_EQ(ResolveClusterAddress("10.0.0.2", {}), "10.0.0.2");
  EXPECT_EQ(ResolveClusterAddress("fd00::2", {}), "[fd00::2]");
  EXPECT_EQ(MessageOf<ConfigError>([] { ResolveClusterAddress("node3", {}); }),
            "cluster.address: 'node3' is not a numeric address such as "
            "10.0.0.2; hint: auto, the default, finds this host's address");
}

// scripts/checks/networks has the addresses that other hosts reach.
TEST(AddressBesideTest, IsLoopbackBesideALauncherThatIsReachedThere) {
  EXPECT_EQ(AddressBeside("tcp://127.0.0.1:7100"), "127.0.0.1");
  EXPECT_EQ(AddressBeside("tcp://[::1]:7100"), "[::1]");
}

}  // namespace
}  // namespace replicant::fleet
