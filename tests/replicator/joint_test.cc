// Steps of several phases, under every strategy but between_graph
// (strategies/between_graph_test.cc).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "replicator/make_replicator.h"
#include "tests/replicator/joint_cases.h"
#include "tests/replicator/parameter_server/server_threads.h"

namespace replicant::replicator {
namespace {

using testing::MessageOf;

ReplicationConfig On(const Strategy& strategy, int replicas,
                     int accumulation_steps = 1) {
  return {.strategy = &strategy,
          .replicas = replicas,
          .backend = "reference",
          .accumulation_steps = accumulation_steps};
}

// The servers of a training with both phases; what their batches hold does not
// matter.
class GanServers {
 public:
  explicit GanServers(const ReplicationConfig& config) {
    for (size_t i = 0; i < config.servers.size(); ++i) {
      threads_.emplace_back([config, i](const std::stop_token& stop) {
        const auto replicator =
            MakeReplicator(config, /*seed=*/3,
                           {.is_server = true, .index = static_cast<int>(i)});
        const auto input =
            replicator->MakeInput(GanRows(config.accumulation_steps, 0));
        const auto step = replicator->BuildJoint(
            *input, {DiscriminatorPhase, GeneratorPhase});
        while (!stop.stop_requested() &&
               step->Run(Clock::Real().Now() + std::chrono::milliseconds(20)) !=
                   NextResult::kEnd) {
        }
      });
    }
  }

 private:
  std::vector<std::jthread> threads_;
};

TEST(JointTest, IsWhatTwoStepsDoInTurnsOnTheSameBatches) {
  const auto replicator = MakeReplicator({.backend = "reference"}, /*seed=*/3);
  const auto input = replicator->MakeInput(GanRows(1, kGanUpdates));
  const auto again = replicator->MakeInput(GanRows(1, kGanUpdates));
  const auto discriminator = replicator->Build(*input, DiscriminatorPhase);
  const auto generator = replicator->Build(*again, GeneratorPhase);
  while (discriminator->Run(kNoWait) == NextResult::kOk) {
    ASSERT_EQ(generator->Run(kNoWait), NextResult::kOk);
  }
  Variables joint = TrainGan({.backend = "reference"});
  for (const auto& [name, value] : VariablesOf<double>(*replicator)) {
    EXPECT_EQ(joint.at(name), value) << name;
  }
  EXPECT_EQ(joint.at("generator_loss"), Values(*generator, "generator_loss"));
}

// Would catch a generator that learns from the discriminator before its update.
TEST(JointTest, ALaterPhaseSeesWhatAnEarlierOneHasUpdated) {
  const auto replicator = MakeReplicator({.backend = "reference"}, /*seed=*/3);
  const auto input = replicator->MakeInput(GanRows(1, kGanUpdates));
  const auto step =
      replicator->BuildJoint(*input, {GeneratorPhase, DiscriminatorPhase});
  while (step->Run(kNoWait) == NextResult::kOk) {
  }
  EXPECT_GT(NormOfDifference(VariablesOf<double>(*replicator).at("g1"),
                             TrainGan({.backend = "reference"}).at("g1")),
            1e-3);
}

TEST(JointTest, OneReplicaAccumulates) {
  CheckTrainsGanAsOneReplica(On(Strategy::kSingle, 1));
}

TEST(JointTest, ReplicasTrainAsOne) {
  for (const int replicas : {1, 2, 4, 8}) {
    SCOPED_TRACE(replicas);
    CheckTrainsGanAsOneReplica(On(Strategy::kInGraph, replicas));
  }
}

TEST(JointTest, HogwildOfOneReplicaIsOneReplica) {
  for (const int accumulation_steps : {1, 2, 4}) {
    EXPECT_EQ(TrainGan(On(Strategy::kHogwild, 1, accumulation_steps)),
              TrainGan(On(Strategy::kSingle, 1, accumulation_steps)));
  }
}

// Every update is made once, by whoever has its last batch.
TEST(JointTest, HogwildCountsUpdatesOfSeveralReplicas) {
  for (const int accumulation_steps : {1, 3}) {
    const auto replicator = MakeReplicator(
        On(Strategy::kHogwild, 3, accumulation_steps), /*seed=*/3);
    constexpr int64_t kUpdates = 20;  // of each
    const auto input = replicator->MakeInput(
        Rows(4, kUpdates * accumulation_steps, RealValue));
    const auto step =
        replicator->BuildJoint(*input, {DiscriminatorPhase, GeneratorPhase});
    int64_t num_batches = 0;
    while (step->Run(kNoWait) == NextResult::kOk) ++num_batches;
    EXPECT_EQ(num_batches, 3 * kUpdates * accumulation_steps);
    for (const char* const name : {"d_step", "g_step"}) {
      EXPECT_EQ(replicator->variables().Get(name).Span<int64_t>()[0],
                3 * kUpdates);
    }
  }
}

TEST(JointTest, AWorkerOfServersIsOneReplica) {
  for (const int num_servers : {1, 3}) {
    for (const int accumulation_steps : {1, 2, 4}) {
      const ServerFolder folder;
      ReplicationConfig config = folder.Config(num_servers, 1, 0);
      config.accumulation_steps = accumulation_steps;
      const GanServers servers(config);
      EXPECT_EQ(TrainGan(config),
                TrainGan(On(Strategy::kSingle, 1, accumulation_steps)));
    }
  }
}

TEST(JointTest, AGroupOfServersIsOneReplica) {
  for (const int replicas : {2, 4, 8}) {
    for (const int accumulation_steps : {1, 2}) {
      SCOPED_TRACE(replicas);
      const ServerFolder folder;
      ReplicationConfig config = folder.Config(2, replicas, 0);
      config.replicas_per_group = replicas;
      config.accumulation_steps = accumulation_steps;
      const GanServers servers(config);
      ExpectNear(TrainGan({.backend = "reference"}), TrainGan(config), 1e-9);
    }
  }
}

// Two and four processes, as threads here, that meet over TCP: the bits equal a
// group in one process.
TEST(JointTest, AGroupOfServersMaySpanProcesses) {
  for (const int processes : {2, 4}) {
    for (const int accumulation_steps : {1, 2}) {
      SCOPED_TRACE(processes);
      const ServerFolder folder;
      ReplicationConfig config = folder.Config(2, 4, 0);
      config.replicas_per_group = 4;
      config.processes_per_group = processes;
      config.rendezvous = (folder.path() / "rendezvous").string();
      config.accumulation_steps = accumulation_steps;
      EXPECT_EQ(config.num_workers(), processes);
      const GanServers servers(config);
      std::vector<std::jthread> others;
      for (int process = 1; process < processes; ++process) {
        others.emplace_back([&config, process] {
          EXPECT_TRUE(TrainGan(config, {.index = process}).empty());
        });
      }
      ExpectNear(TrainGan(On(Strategy::kInGraph, 4, accumulation_steps)),
                 TrainGan(config), 0.0);
    }
  }
}

// Groups that span processes do not wait for each other: 2 groups of 2.
TEST(JointTest, GroupsThatSpanProcessesLearnTogether) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(1, 4, 2);
  config.replicas_per_group = 2;
  config.processes_per_group = 2;
  config.rendezvous = (folder.path() / "rendezvous").string();
  EXPECT_EQ(config.num_groups(), 2);
  const GanServers servers(config);
  std::vector<std::jthread> others;
  for (int process = 1; process < 4; ++process) {
    others.emplace_back([&config, process] {
      const auto replicator =
          MakeReplicator(config, /*seed=*/3, {.index = process});
      const auto input =
          replicator->MakeInput([&](const InputContext& context) {
            EXPECT_EQ(context.group_id, process / 2);
            return GanRows(1, 1'000'000)(context);
          });
      const auto step =
          replicator->BuildJoint(*input, {DiscriminatorPhase, GeneratorPhase});
      while (step->Run(kNoWait) != NextResult::kEnd) {
      }
    });
  }
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(GanRows(1, 1'000'000));
  const auto step =
      replicator->BuildJoint(*input, {DiscriminatorPhase, GeneratorPhase});
  int64_t num_steps = 0;
  int64_t num_own = 0;
  const auto give_up = Clock::Real().Now() + std::chrono::seconds(60);
  // until the other group has made steps as well
  while (num_steps < num_own + 20 && Clock::Real().Now() < give_up) {
    ASSERT_EQ(step->Run(kNoWait), NextResult::kOk);
    num_steps += step->num_steps();
    ++num_own;
  }
  EXPECT_GE(num_steps, num_own + 20);
  const int64_t counted =
      replicator->variables().Get("d_step").Span<int64_t>()[0];
  EXPECT_GE(counted, num_steps - 1);
  replicator->Stop();
}

// A checkpoint in the middle of an update neither stands nor loses it.
TEST(JointTest, VariablesAreThereInTheMiddleOfAnUpdate) {
  const ServerFolder folder;
  ReplicationConfig config = folder.Config(2, 1, 0);
  config.accumulation_steps = 2;
  const GanServers servers(config);
  const auto replicator = MakeReplicator(config, /*seed=*/3);
  const auto input = replicator->MakeInput(GanRows(2, kGanUpdates));
  const auto step =
      replicator->BuildJoint(*input, {DiscriminatorPhase, GeneratorPhase});
  for (int64_t i = 0; step->Run(kNoWait) == NextResult::kOk; ++i) {
    EXPECT_EQ(replicator->variables().Get("g_step").Span<int64_t>()[0],
              (i + 1) / 2);
  }
  const Variables whole = TrainGan(On(Strategy::kSingle, 1, 2));
  for (const auto& [name, value] : VariablesOf<double>(*replicator)) {
    if (name.starts_with("accumulation/")) continue;
    EXPECT_EQ(value, whole.at(name)) << name;
  }
  replicator->Stop();
}

TEST(JointTest, RefusesNoPhasesAndValuesOfOneName) {
  const auto replicator = MakeReplicator({.backend = "reference"}, /*seed=*/3);
  const auto input = replicator->MakeInput(GanRows(1, 1));
  EXPECT_EQ(MessageOf<InvalidArgument>(
                [&] { (void)replicator->BuildJoint(*input, {}); }),
            "BuildJoint: a step has one phase at least, got none");
  EXPECT_EQ(
      MessageOf<InvalidArgument>([&] {
        (void)replicator->BuildJoint(*input, {GeneratorPhase, GeneratorPhase});
      }),
      "the step function gives two values called 'generator_loss'");
}

}  // namespace
}  // namespace replicant::replicator
