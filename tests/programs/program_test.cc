#include "programs/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fs.h"
#include "programs/run/run_config.h"
#include "replicator/replicator.h"
#include "tests/support/message_of.h"

namespace replicant::programs {
namespace {

using testing::MessageOf;

TEST(ProgramTest, ReadsWholeNumbersOfOptions) {
  EXPECT_EQ(ParseInteger("--index", "3", {0, 3}), 3);
  EXPECT_EQ(ParseInteger("--index", "-3", {-5, 3}), -3);
  for (const char* text :
       {"4", "-1", "", "2x", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(
        MessageOf<ConfigError>([&] {
          ParseInteger("--index", text, {0, 3});
        }),
        std::string("--index ") + text + ": want a whole number in [0, 3]");
  }
}

// The programs of a run find each other by its folder, however it is written.
TEST(ResolveAddressesTest, ARunHasAddressesOfItsOwn) {
  const auto resolve = [](const std::string& folder) {
    RunConfig config;
    config.learner.replication.strategy =
        &replicator::Strategy::kParameterServer;
    config.learner.replication.servers = {"auto", "tcp://127.0.0.1:9", "auto"};
    ResolveAddresses(folder, &config);
    return config;
  };
  const RunConfig a = resolve("/tmp/a");
  EXPECT_EQ(a.replay.bind.substr(0, 17), "ipc://@replicant-");
  EXPECT_EQ(resolve("/tmp/b/../a").replay.bind, a.replay.bind);
  EXPECT_NE(resolve("/tmp/b").replay.bind, a.replay.bind);
  // before the folder is made and after it
  EXPECT_EQ(resolve("not-there").replay.bind,
            resolve(std::filesystem::current_path() / "not-there").replay.bind);
  const std::vector<std::string>& servers = a.learner.replication.servers;
  EXPECT_EQ(servers[1], "tcp://127.0.0.1:9");
  EXPECT_EQ(std::set<std::string>({a.replay.bind, a.learner.parameter_bind,
                                   servers[0], servers[2]})
                .size(),
            4u);
}

// Would catch an export or an evaluation that is refused in a job of another
// size.
TEST(ResolveRendezvousTest, OnlyTheLearnerReadsItsLauncher) {
  ::setenv("RANK", "0", 1);        // NOLINT(concurrency-mt-unsafe)
  ::setenv("WORLD_SIZE", "4", 1);  // NOLINT(concurrency-mt-unsafe)
  RunConfig config;
  config.learner.replication = {
      .strategy = &replicator::Strategy::kBetweenGraph, .replicas = 2};
  config.learner.replication.communicator =
      replicator::ReplicationConfig::Communicator::kTcp;
  EXPECT_NO_THROW(ResolveAddresses("/tmp/a", &config));
  const std::string problem = MessageOf<ConfigError>(
      [&] { ResolveRendezvous("/tmp/a", &config.learner.replication); });
  ::unsetenv("RANK");        // NOLINT(concurrency-mt-unsafe)
  ::unsetenv("WORLD_SIZE");  // NOLINT(concurrency-mt-unsafe)
  EXPECT_THAT(problem,
              ::testing::HasSubstr("a launcher has started 4 workers, and "
                                   "learner.replication has 2"));
  ResolveRendezvous("/tmp/a", &config.learner.replication);
  EXPECT_EQ(config.learner.replication.rendezvous, "/tmp/a/rendezvous");
}

// Would catch a role, or a second run, that takes another port than was
// announced.
TEST(AnnounceAddressesTest, EveryProgramFindsTheFreePorts) {
  const TemporaryFolder folder;
  RunConfig fleet;
  fleet.replay.bind = fleet.learner.parameter_bind = "tcp://127.0.0.1:*";
  RunConfig role = fleet;
  const auto claims = AnnounceAddresses(folder.path(), &fleet).ports;
  EXPECT_EQ(claims.size(), 2u);
  ResolveAddresses(folder.path(), &role);
  EXPECT_EQ(role.replay.bind, claims[0].endpoint());
  EXPECT_EQ(role.learner.parameter_bind, claims[1].endpoint());
  EXPECT_NE(role.replay.bind, role.learner.parameter_bind);
  // without a fleet the service chooses
  RunConfig alone;
  alone.replay.bind = "tcp://127.0.0.1:*";
  ResolveAddresses(folder.path() / "other", &alone);
  EXPECT_EQ(alone.replay.bind, "tcp://127.0.0.1:*");
  alone.replay.bind = "tcp://203.0.113.1:*";
  EXPECT_EQ(
      MessageOf<ConfigError>([&] { AnnounceAddresses(folder.path(), &alone); }),
      "replay.bind: tcp://203.0.113.1:*: Cannot assign requested address");
}

// Would catch two shards at one address.
TEST(AnnounceAddressesTest, EveryShardHasAPortOfItsOwn) {
  const TemporaryFolder folder;
  RunConfig fleet;
  fleet.replay.shards = 3;
  fleet.replay.bind = "tcp://127.0.0.1:*";
  RunConfig role = fleet, other = fleet;
  const auto claims = AnnounceAddresses(folder.path(), &fleet).ports;
  EXPECT_EQ(claims.size(), 3u);
  ResolveAddresses(folder.path(), &role);
  EXPECT_EQ(
      role.replay.Endpoints(),
      (std::vector<std::string>{claims[0].endpoint(), claims[1].endpoint(),
                                claims[2].endpoint()}));
  other.replay.bind = "auto";
  ResolveAddresses(folder.path() / "other", &other);
  const std::vector<std::string> sockets = other.replay.Endpoints();
  EXPECT_EQ(std::set<std::string>(sockets.begin(), sockets.end()).size(), 3u);
  EXPECT_EQ(sockets[2].substr(0, 17), "ipc://@replicant-");
}

// Would catch `replay --status RUN` that asks where no shard is.
TEST(ReplayOfRunTest, ShardsAreWhereTheHostsOfTheClusterSay) {
  const TemporaryFolder folder;
  const auto endpoints = [&folder](const std::string& backend) {
    AtomicWriteFile(folder.path() / "state.yaml", "status: running\n");
    // of a program that knows more workloads
    AtomicWriteFile(folder.path() / "config.yaml",
                    "run: {dir: elsewhere}\n"
                    "own_workload: {size: 1}\n"
                    "learner: {workload: own_workload}\n"
                    "replay: {shards: 2, bind: auto}\n"
                    "cluster:\n"
                    "  backend: " +
                        backend +
                        "\n"
                        "  hosts:\n"
                        "    - {name: a, shard_address: 'tcp://10.0.0.2:7', "
                        "shard_folder: s}\n"
                        "    - {name: b}\n"
                        "    - {name: c, shard_address: 'tcp://10.0.0.4:8', "
                        "shard_folder: s}\n");
    const RunConfig config = ReplayOfRun(folder.path());
    EXPECT_EQ(config.run.dir, folder.path());
    return config.replay.Endpoints();
  };
  EXPECT_EQ(endpoints("ssh"),
            (std::vector<std::string>{"tcp://10.0.0.2:7", "tcp://10.0.0.4:8"}));
  const std::vector<std::string> sockets = endpoints("local");
  ASSERT_EQ(sockets.size(), 2u);
  EXPECT_EQ(sockets[1].substr(0, 17), "ipc://@replicant-");
}

// Would catch a training in another environment than the user has named.
TEST(RegistryTest, ATaskIsKnownAndThatOfAPythonFunctionIsUsed) {
  Registry registry = Registry::BuiltIn();
  const auto problem = [&](const std::string& name) {
    return MessageOf<ConfigError>([&] {
      LoadRunConfig(
          config::Document::FromText(
              "run.yaml", "run: {seed: 1}\ntask: {name: " + name + "}"),
          registry);
    });
  };
  EXPECT_EQ(problem("waker-walk"),
            "run.yaml:2:14: task.name: task 'waker-walk' is not known; did you "
            "mean 'walker-walk'?; hint: `replicant train --list` or "
            "`env_rollout --list` prints all names");
  EXPECT_EQ(problem("walker-walk"), "no exception");
  registry.tasks.Add({.name = std::string(env::kPythonTask)});
  EXPECT_EQ(problem("walker-walk"),
            "run.yaml:2:14: task.name: 'walker-walk', so that the environment "
            "of REPLICANT_MAKE_ENV is not used; allowed: python-environment, "
            "or none in REPLICANT_MAKE_ENV");
  EXPECT_EQ(problem("python-environment"), "no exception");
}

const replicator::Strategy kOwnStrategy{
    .name = "own",
    .doc = "a strategy of a user's",
    .replicas_of_group =
        [](const replicator::ReplicationConfig& c) { return c.replicas; },
    .make =
        [](const replicator::StrategyRequest&) {
          return std::unique_ptr<replicator::Replicator>();
        }};

TEST(RegistryTest, ARunNamesAnAddedStrategy) {
  Registry registry = Registry::BuiltIn();
  registry.strategies.Add(kOwnStrategy);
  const RunConfig config =
      LoadRunConfig(
          config::Document::FromText("run.yaml",
                                     "task: {name: cartpole-swingup}\n"
                                     "learner: {replication: {strategy: own}}"),
          registry)
          .config;
  EXPECT_EQ(config.learner.replication.strategy, &kOwnStrategy);
}

}  // namespace
}  // namespace replicant::programs
