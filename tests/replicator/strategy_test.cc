#include "replicator/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/config/load.h"
#include "base/error.h"
#include "replicator/make_replicator.h"
#include "replicator/replication_config.h"
#include "replicator/replicator.h"
#include "tests/support/message_of.h"

namespace replicant::replicator {
namespace {

using ::testing::HasSubstr;
using testing::MessageOf;

// A strategy of a user's: in_graph, whose gradients travel as bf16.
std::unique_ptr<Replicator> MakeHalved(const StrategyRequest& request) {
  ReplicationConfig config = request.config;
  config.gradient_format = DType::kBF16;
  config.strategy = &Strategy::kInGraph;
  return MakeReplicator(config, request.seed, request.rank,
                        request.make_backend);
}

constexpr Strategy kHalved{
    .name = "halved",
    .doc = "in_graph with half the bytes",
    .replicas_of_group = [](const ReplicationConfig& c) { return c.replicas; },
    .make = &MakeHalved};

ReplicationConfig Load(std::string_view text,
                       const StrategyRegistry& strategies) {
  return config::LoadBy<ReplicationConfig>(
             config::Document::FromText("run.yaml", text),
             [&](config::Reader& reader) {
               return ReplicationConfig::Read(reader, strategies);
             })
      .config;
}

TEST(StrategyRegistryTest, AnAddedStrategyIsReadAndMade) {
  StrategyRegistry strategies = StrategyRegistry::BuiltIn();
  strategies.Add(kHalved);
  const ReplicationConfig config =
      Load("{strategy: halved, replicas: 2, backend: reference}", strategies);
  EXPECT_EQ(config.strategy, &kHalved);
  EXPECT_EQ(config.replicas_of_group(), 2);
  const auto replicator = MakeReplicator(config, /*seed=*/1);
  EXPECT_EQ(replicator->num_replicas(), 2);
}

TEST(StrategyRegistryTest, MessagesAndManualNameAnAddedStrategy) {
  StrategyRegistry strategies = StrategyRegistry::BuiltIn();
  EXPECT_THAT(
      MessageOf<ConfigError>([&] { Load("{strategy: halved}", strategies); }),
      HasSubstr("parameter_server"));
  strategies.Add(kHalved);
  EXPECT_THAT(
      MessageOf<ConfigError>([&] { Load("{strategy: halve}", strategies); }),
      HasSubstr("halved"));
  const std::string manual =
      config::DescribeBy([&](config::Reader& reader) {
        return ReplicationConfig::Read(reader, strategies);
      }).text();
  EXPECT_THAT(manual, HasSubstr("in_graph with half"));
}

TEST(StrategyRegistryTest, RefusesATakenNameAndAMissingFunction) {
  StrategyRegistry strategies = StrategyRegistry::BuiltIn();
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { strategies.Add(Strategy::kHogwild); }),
      "StrategyRegistry: there is a strategy 'hogwild' already");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] { strategies.Add({.name = "none"}); }),
      "StrategyRegistry: strategy 'none' needs replicas_of_group and make");
}

}  // namespace
}  // namespace replicant::replicator
