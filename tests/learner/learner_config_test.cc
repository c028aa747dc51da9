#include "learner/learner_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/config/load.h"
#include "base/error.h"
#include "tests/support/message_of.h"

namespace replicant::learner {
namespace {

using replicant::testing::MessageOf;

// For a group of five processes, or at least two.
LearnerConfig GroupOfFive(int64_t batch_size) {
  LearnerConfig config;
  config.batch_size = batch_size;
  config.replication.strategy = &replicator::Strategy::kBetweenGraph;
  config.replication.communicator =
      replicator::ReplicationConfig::Communicator::kTcp;
  config.replication.replicas = 5;
  config.replication.min_processes = 2;
  return config;
}

TEST(LearnerConfigTest, TheBatchStaysWhereItCanBeDivided) {
  const LearnerConfig four = LearnerOfProcesses(GroupOfFive(100), 4);
  EXPECT_EQ(four.replication.replicas, 4);
  EXPECT_EQ(four.batch_size, 100);
  EXPECT_EQ(four.replication.learning_rate_scale, 1.0);
}

TEST(LearnerConfigTest, LearningRatesFollowABatchThatCannotBeDivided) {
  const LearnerConfig three = LearnerOfProcesses(GroupOfFive(100), 3);
  EXPECT_EQ(three.batch_size, 99);
  EXPECT_EQ(three.replication.learning_rate_scale, 0.99);
}

TEST(LearnerConfigTest, ReplicasOfAProcessComeAndGoTogether) {
  LearnerConfig config = GroupOfFive(100);
  config.replication.replicas = 10;
  config.replication.replicas_per_process = 2;
  const LearnerConfig two = LearnerOfProcesses(config, 2);
  EXPECT_EQ(two.replication.replicas, 4);
  EXPECT_EQ(two.replication.num_processes(), 2);
  EXPECT_EQ(two.batch_size, 100);
}

TEST(LearnerConfigTest, OtherSizesOfAGroupAreRefused) {
  for (const int processes : {1, 6}) {
    EXPECT_EQ(
        MessageOf<ConfigError>(
            [&] { LearnerOfProcesses(GroupOfFive(100), processes); }),
        fmt::format("learner.replication: a group of {} processes; allowed: 2 "
                    "to 5, by min_processes and replicas",
                    processes));
  }
}

TEST(LearnerConfigTest, SharesOfABatchMakeOne) {
  const auto load = [](const std::string& yaml) {
    return config::Load<BatchSharesConfig>(
               config::Document::FromText("shares.yaml", yaml))
        .config;
  };
  EXPECT_EQ(load("{prior: 0.1, default: 0.9}").prior, 0.1);
  EXPECT_EQ(MessageOf([&] { load("{prior: 0.5, default: 0.25}"); }),
            "shares.yaml:1:23: default: prior 0.5 and default 0.25 make 0.75, "
            "want shares whose sum is 1");
}

TEST(LearnerConfigTest, AWorkloadOfImagesKeepsItsBatch) {
  LearnerConfig config = GroupOfFive(60);
  config.workload = "resnet50";
  CheckSameBatch(config);
  config.batch_size = 100;
  EXPECT_EQ(MessageOf<ConfigError>([&] { CheckSameBatch(config); }),
            "learner.replication.min_processes: 2 allows 3 replicas, among "
            "which learner.batch_size 100 cannot be divided evenly; workload "
            "resnet50 counts its place in the images in batches, which must "
            "stay the same");
}

// The problems of a section `replication`.
std::string ProblemsOf(const std::string& yaml) {
  return MessageOf<ConfigError>([&] {
    config::LoadBy<replicator::ReplicationConfig>(
        config::Document::FromText("run.yaml", yaml),
        [](config::Reader& reader) {
          return replicator::ReplicationConfig::Read(reader);
        });
  });
}

TEST(LearnerConfigTest, MinProcessesIsOfAGroupOverTcp) {
  EXPECT_TRUE(
      ProblemsOf("{strategy: between_graph, replicas: 3, "
                 "min_processes: 2}")
          .ends_with("min_processes: belongs to strategy between_graph with "
                     "communicator tcp"));
  EXPECT_TRUE(ProblemsOf("{strategy: between_graph, replicas: 3, communicator: "
                         "tcp, min_processes: 4}")
                  .ends_with("min_processes: 4 is more than the 3 processes "
                             "that there are"));
}

}  // namespace
}  // namespace replicant::learner
