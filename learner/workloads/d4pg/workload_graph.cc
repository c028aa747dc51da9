#include "learner/workloads/d4pg/workload_graph.h"

#include <span>

#include "agents/d4pg/update.h"

namespace replicant::learner::d4pg {
namespace {

using agents::d4pg::Update;
using graph::Graph;
using graph::Output;
using graph::VariableId;

void AddGradients(const Graph& graph, const std::vector<VariableId>& parameters,
                  const std::vector<Output>& gradients,
                  WorkloadGraph* workload) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    workload->gradients.push_back(
        {graph.variable(parameters[i]).name, gradients[i]});
  }
}

}  // namespace

WorkloadConfig WorkloadConfig::Read(config::Reader& reader) {
  WorkloadConfig c;
  reader.Section("agent", &c.agent, "the D4PG agent");
  reader.Field("observation", &c.observation, {1, 1 << 20}, {1, 3},
               "dimensions of one observation: [O], or [H, W, C] of pixels");
  reader.Field("action_size", &c.action_size, {1, 1000}, "number of actions");
  reader.Field("batch_size", &c.batch_size, {1, 65536},
               "transitions of one step");
  reader.Field("discount", &c.discount, {0.0, 0.999999}, "per agent step");
  reader.Field("largest_reward", &c.largest_reward, {0.0, 1e6},
               "of an agent step: 1 where the action repeat averages rewards, "
               "the action repeat where it sums them");
  reader.Field("seed", &c.seed, {0, INT64_MAX},
               "of first values and random shifts");
  return c;
}

agents::d4pg::AgentSpec WorkloadConfig::Spec(DType dtype) const {
  return {.observation = Shape(std::span<const int64_t>(observation)),
          .action_size = action_size,
          .dtype = dtype};
}

agents::d4pg::Support WorkloadConfig::Support() const {
  return agents::d4pg::MakeSupport(agent.distribution, discount,
                                   largest_reward);
}

WorkloadGraph BuildWorkload(const WorkloadConfig& config, DType dtype) {
  const agents::d4pg::AgentSpec spec = config.Spec(dtype);
  const agents::d4pg::Support support = config.Support();
  const auto seed = static_cast<uint64_t>(config.seed);

  WorkloadGraph workload;
  workload.graph = std::make_unique<Graph>(seed);
  Graph& graph = *workload.graph;
  CheckSpec(config.agent.networks, spec);
  const Update update = agents::d4pg::BuildUpdate(
      graph, config.agent, spec, support,
      agents::d4pg::AddBatchInputs(graph, config.agent.networks, spec,
                                   config.batch_size));
  workload.updates = update.updates;
  workload.losses = {{"critic_loss", update.critic_loss},
                     {"policy_loss", update.policy_loss}};
  workload.outputs = {{"priority", update.priority}, {"value", update.value}};
  if (update.shift.is_valid()) {
    workload.outputs.push_back({"shift", update.shift});
    workload.outputs.push_back({"next_shift", update.next_shift});
  }
  AddGradients(graph, update.critic_parameters, update.critic_gradients,
               &workload);
  AddGradients(graph, update.policy_parameters, update.policy_gradients,
               &workload);

  workload.start_graph = std::make_unique<Graph>(seed);
  workload.start_updates = {agents::d4pg::BuildTargetCopy(
      *workload.start_graph, config.agent, spec, support.num_atoms)};
  return workload;
}

}  // namespace replicant::learner::d4pg
