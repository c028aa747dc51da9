// A group of between_graph that continues from a checkpoint with another number
// of processes, which are threads here and meet over TCP.
#include <gtest/gtest.h>

#include <exception>
#include <filesystem>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/fs.h"
#include "engine/runtime/checkpoint.h"
#include "replicator/make_replicator.h"
#include "tests/replicator/replication_cases.h"

namespace replicant::replicator {
namespace {

// Divided evenly by 3 and by 2.
constexpr int64_t kGlobalRows = 12;
constexpr int64_t kSteps = 5;  // of each number of processes

using Variables = std::map<std::string, std::vector<double>>;

ReplicationConfig GroupOf(int processes) {
  return {.strategy = &Strategy::kBetweenGraph,
          .replicas = processes,
          .backend = "reference",
          .timeout_s = 60.0,
          .communicator = ReplicationConfig::Communicator::kTcp};
}

// Makes kSteps steps from step `first` on as process `index`. The first process
// begins with the checkpoint of that step, if there is one, and writes the next
// one.
Variables TrainOn(const ReplicationConfig& config, int index, int64_t first,
                  const std::filesystem::path& folder) {
  const auto replicator = MakeReplicator(config, /*seed=*/3, {.index = index});
  const auto value = [first](int64_t step, int64_t row, int64_t column) {
    return RealValue(first + step, row, column);
  };
  const auto input = replicator->MakeInput(Rows(kGlobalRows, kSteps, value));
  const auto step = replicator->Build(*input, NetworkStep);
  if (index == 0 && first > 0) {
    runtime::LoadCheckpoint(folder / std::to_string(first),
                            replicator->variables());
  }
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  if (index == 0) {
    runtime::SaveCheckpoint(folder / std::to_string(first + kSteps),
                            runtime::CopyVariables(replicator->variables()),
                            {.step = first + kSteps});
  }
  return VariablesOf<double>(*replicator);
}

// The same as all processes of a group; returns their variables.
std::vector<Variables> TrainGroup(int processes, int64_t first,
                                  const std::filesystem::path& folder) {
  ReplicationConfig config = GroupOf(processes);
  config.rendezvous = (folder / "meet").string();
  std::vector<Variables> variables(static_cast<size_t>(processes));
  std::vector<std::string> errors(variables.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < variables.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        variables[i] = TrainOn(config, static_cast<int>(i), first, folder);
      } catch (const std::exception& error) {
        errors[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return variables;
}

// 3 processes, then 2, then 3 learn what one replica learns in as many steps;
// "last" covers the first replica's rows only.
TEST(ElasticGroupTest, AGroupThatShrinksAndGrowsLearnsWhatOneReplicaLearns) {
  const TemporaryFolder folder;
  std::vector<Variables> group;
  int64_t step = 0;
  for (const int processes : {3, 2, 3}) {
    group = TrainGroup(processes, step, folder.path());
    step += kSteps;
    // to the bit
    for (const Variables& other : group) EXPECT_EQ(other, group[0]);
  }
  const auto one = MakeReplicator({.backend = "reference"}, /*seed=*/3);
  const auto input = one->MakeInput(Rows(kGlobalRows, step, RealValue));
  const auto whole = one->Build(*input, NetworkStep);
  while (whole->Run(kNoWait) == NextResult::kOk) {
  }
  const Variables expected = VariablesOf<double>(*one);
  ASSERT_EQ(group[0].size(), expected.size());
  for (const auto& [name, value] : expected) {
    if (name == "last") continue;
    EXPECT_LE(NormOfDifference(value, group[0].at(name)), 1e-9) << name;
  }
}

// A plain step of SGD from 0: w is 0 less its gradient times the rate.
double XAfterOneStep(double learning_rate_scale) {
  ReplicationConfig config = GroupOf(1);
  config.learning_rate_scale = learning_rate_scale;
  const auto replicator = MakeReplicator(config, /*seed=*/1);
  const auto input = replicator->MakeInput(Rows(1, 1, WholeValue));
  const auto step = replicator->Build(*input, [](ReplicaContext& replica,
                                                 const Inputs& /*batch*/) {
    graph::Graph& g = replica.graph();
    const graph::VariableId w =
        g.AddVariable({.name = "w", .dtype = DType::kF64, .shape = Shape({})});
    const graph::Output loss = g.Read(w);
    const auto mean =
        replica.MeanGradients(graph::Gradients(loss, {g.Read(w)}));
    return StepOutputs{.values = {},
                       .updates = {nn::Sgd(replica, "sgd", {w}, mean,
                                           g.Scalar(0.5, DType::kF64))}};
  });
  EXPECT_EQ(step->Run(kNoWait), NextResult::kOk);
  return VariablesOf<double>(*replicator).at("w")[0];
}

TEST(ElasticGroupTest, LearningRatesAreScaled) {
  EXPECT_EQ(XAfterOneStep(1.0), -0.5);
  EXPECT_EQ(XAfterOneStep(0.75), -0.375);
}

}  // namespace
}  // namespace replicant::replicator
