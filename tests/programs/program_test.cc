#include "programs/program.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "programs/run_config.h"
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
    config.learner.replication.servers = {"auto", "tcp://127.0.0.1:9", "auto"};
    ResolveAddresses(folder, &config);
    return config;
  };
  const RunConfig a = resolve("/tmp/a");
  EXPECT_EQ(a.replay.bind.substr(0, 17), "ipc://@replicant-");
  EXPECT_EQ(ReplayAddress("/tmp/b/../a", "auto"), a.replay.bind);
  EXPECT_EQ(ReplayAddress("/tmp/a", "tcp://127.0.0.1:9"), "tcp://127.0.0.1:9");
  EXPECT_NE(resolve("/tmp/b").replay.bind, a.replay.bind);
  const std::vector<std::string>& servers = a.learner.replication.servers;
  EXPECT_EQ(servers[1], "tcp://127.0.0.1:9");
  EXPECT_EQ(std::set<std::string>({a.replay.bind, a.learner.parameter_bind,
                                   servers[0], servers[2]})
                .size(),
            4u);
}

const replicator::Strategy kOwnStrategy{
    .name = "own",
    .doc = "a strategy of a user's",
    .replicas_of_group =
        [](const replicator::ReplicationConfig& c) { return c.replicas; },
    .make = replicator::Strategy::kInGraph.make};

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
