#include "programs/program.h"

#include <gtest/gtest.h>

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
