#include "learner/workloads/d4pg/d4pg_step.h"

#include "agents/d4pg/update.h"
#include "core/graph/ops/shape_ops.h"
#include "core/runtime/executor.h"
#include "learner/workloads/replica_hooks.h"

namespace replicant::learner {
namespace {

namespace d4pg = agents::d4pg;
using graph::Output;
using replicator::ReduceOp;
using replicator::ReplicaContext;

// [rows of one replica] -> [rows of all].
Output AllRows(ReplicaContext& replica, Output rows) {
  return graph::Reshape(replica.AllGather(rows), {-1});
}

}  // namespace

replicator::StepOutputs BuildD4pgStep(ReplicaContext& replica,
                                      const replicator::Inputs& inputs,
                                      const d4pg::D4pgConfig& config,
                                      const d4pg::AgentSpec& spec,
                                      const d4pg::Support& support) {
  const Output reward = inputs.at("reward");
  const d4pg::Update update =
      d4pg::BuildUpdate(replica.graph(), config, spec, support,
                        {.observation = inputs.at("observation"),
                         .action = inputs.at("action"),
                         .reward = reward,
                         .discount = inputs.at("discount"),
                         .next_observation = inputs.at("next_observation"),
                         .importance_weight = inputs.at("importance_weight")},
                        HooksOf(replica, reward.shape()[0]));
  return {.values = {{"critic_loss",
                      replica.AllReduce(update.critic_loss, ReduceOp::kMean)},
                     {"policy_loss",
                      replica.AllReduce(update.policy_loss, ReduceOp::kMean)},
                     {"priority", AllRows(replica, update.priority)},
                     {"value", AllRows(replica, update.value)}},
          .updates = update.updates};
}

void CopyToTargets(const d4pg::D4pgConfig& config, const d4pg::AgentSpec& spec,
                   int64_t num_atoms, uint64_t seed,
                   runtime::VariableStore& variables) {
  graph::Graph graph(seed);
  const Output copy = d4pg::BuildTargetCopy(graph, config, spec, num_atoms);
  runtime::Executor(graph, {.outputs = {}, .updates = {copy}}, variables).Run();
}

}  // namespace replicant::learner
