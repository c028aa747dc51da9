// D4PG on replicas that do not wait for each other. With one of them, that is
// the update of one replica.
#include <gtest/gtest.h>

#include "tests/learner/workloads/d4pg_replicas.h"
#include "tests/replicator/parameter_server/server_threads.h"

namespace replicant::learner {
namespace {

using replicator::ReplicationConfig;
using replicator::Strategy;

void ExpectSame(const D4pgRun& a, const D4pgRun& b) {
  EXPECT_EQ(a.last, b.last);
  EXPECT_EQ(a.priorities, b.priorities);
  EXPECT_NE(a.first, a.last);
}

std::vector<D4pgCase> Cases() {
  return {StateCase(DType::kF32), PixelCase(DType::kF32),
          StatisticsCase(DType::kF32), RepresentationCase(DType::kF32)};
}

// As StateCase(), with targets that are copied now and then, by a count.
D4pgCase CopyCase() {
  D4pgCase c = StateCase(DType::kF32);
  c.agent.target.update = agents::d4pg::TargetUpdate::kPeriodicCopy;
  c.agent.target.period = 3;
  return c;
}

TEST(D4pgHogwildTest, OneReplicaLearnsWhatSingleLearns) {
  const ReplicationConfig hogwild{.strategy = &Strategy::kHogwild,
                                  .replicas = 1};
  for (const D4pgCase& c : Cases()) {
    ExpectSame(TrainD4pg(c, hogwild), TrainD4pg(c, {}));
  }
  ExpectSame(TrainD4pg(CopyCase(), hogwild), TrainD4pg(CopyCase(), {}));
}

TEST(D4pgHogwildTest, ManyReplicasMakeAllSteps) {
  const D4pgCase c = StateCase(DType::kF32);
  const D4pgRun run =
      TrainD4pg(c, {.strategy = &Strategy::kHogwild, .replicas = 3});
  for (const auto& [name, values] : run.last) {
    for (const double value : values) ASSERT_TRUE(std::isfinite(value)) << name;
  }
  EXPECT_EQ(run.num_steps, 3 * kReplicaSteps);
  EXPECT_NE(run.first, run.last);
}

// With one worker, which waits for its servers.
void CheckParameterServers(const D4pgCase& c, int num_servers, int replicas) {
  SCOPED_TRACE(num_servers);
  const replicator::ServerFolder folder;
  ReplicationConfig config =
      folder.Config(num_servers, replicas, /*staleness=*/0, "cpu");
  config.replicas_per_group = replicas;
  const auto servers = replicator::StartServers(
      config,
      [&](const replicator::InputContext& context) {
        return std::make_unique<TransitionRows>(c, context);
      },
      [&](replicator::ReplicaContext& replica,
          const replicator::Inputs& inputs) {
        return BuildAgentStep(replica, inputs,
                              *agents::d4pg::MakeAgent(c.agent), c.spec)
            .outputs;
      });
  ExpectSame(TrainD4pg(c, config),
             TrainD4pg(c, replicas == 1 ? ReplicationConfig{}
                                        : ReplicationConfig{
                                              .strategy = &Strategy::kInGraph,
                                              .replicas = replicas}));
}

TEST(D4pgParameterServerTest, OneWorkerLearnsWhatSingleLearns) {
  for (const D4pgCase& c : Cases()) {
    for (const int num_servers : {1, 3}) {
      CheckParameterServers(c, num_servers, /*replicas=*/1);
    }
  }
  CheckParameterServers(CopyCase(), /*num_servers=*/2, /*replicas=*/1);
}

TEST(D4pgParameterServerTest, AGroupLearnsWhatItsReplicasLearn) {
  CheckParameterServers(StateCase(DType::kF32), /*num_servers=*/2,
                        /*replicas=*/2);
}

}  // namespace
}  // namespace replicant::learner
