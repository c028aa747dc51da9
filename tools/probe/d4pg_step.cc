#include "tools/probe/d4pg_step.h"

#include <map>
#include <span>
#include <string>

#include "agents/d4pg/update.h"
#include "agents/transition_batch.h"
#include "engine/nn/single_replica.h"

namespace replicant::probe::d4pg {

using graph::Graph;
using graph::Output;

StepGraphConfig StepGraphConfig::Read(config::Reader& reader) {
  StepGraphConfig c;
  reader.Section("agent", &c.agent, "the D4PG agent");
  reader.Field("observation", &c.observation, {1, 1 << 20}, {1, 3},
               "dimensions of one observation: [O], or [H, W, C] of pixels");
  reader.Field("state_size", &c.state_size, {0, 1 << 20},
               "numbers of a state beside pixels; 0: none");
  reader.Field("action_size", &c.action_size, {1, 1000}, "number of actions");
  reader.Field("batch_size", &c.batch_size, {1, 65536}, "transitions per step");
  reader.Field("discount", &c.discount, {0.0, 0.999999},
               "discount per agent step");
  reader.Field("largest_reward", &c.largest_reward, {0.0, 1e6},
               "largest reward of an agent step: 1 if the action repeat "
               "averages rewards, the action repeat if it sums them");
  reader.Field("seed", &c.seed, {0, INT64_MAX},
               "seed of initial values and random shifts");
  return c;
}

agents::LearningSpec StepGraphConfig::Spec(DType dtype) const {
  const auto actions = static_cast<size_t>(action_size);
  return {.task = {.has_pixels = agent.networks.encoder.has_pixels(),
                   .observation = Shape(std::span<const int64_t>(observation)),
                   .state_size = state_size,
                   .largest_reward = largest_reward,
                   .action_minimum = std::vector<double>(actions, -1.0),
                   .action_maximum = std::vector<double>(actions, 1.0)},
          .discount = discount,
          .window = agent.representation.horizon,
          .window_observations = agent.representation.num_targets(),
          .dtype = dtype};
}

agents::d4pg::Support StepGraphConfig::MakeSupport() const {
  return agents::d4pg::MakeSupport(agent.distribution, discount,
                                   largest_reward);
}

StepGraph BuildStepGraph(const StepGraphConfig& config, DType dtype) {
  const agents::LearningSpec spec = config.Spec(dtype);
  const agents::d4pg::Support support = config.MakeSupport();
  const auto seed = static_cast<uint64_t>(config.seed);

  StepGraph step;
  step.graph = std::make_unique<Graph>(seed);
  Graph& graph = *step.graph;
  nn::SingleReplica replica(graph);
  agents::d4pg::CheckSpec(config.agent.networks, spec);
  std::map<std::string, Output> inputs;
  for (const agents::TransitionTensor& tensor :
       agents::TransitionTensors(spec, config.batch_size)) {
    inputs[tensor.name] = graph.Input(tensor.name, tensor.dtype, tensor.shape);
  }
  const auto batch = agents::TransitionBatch::From(
      spec, [&](const std::string& name) { return inputs.at(name); });
  const agents::d4pg::Update update =
      agents::d4pg::BuildUpdate(replica, config.agent, spec, support, batch);
  step.updates = update.updates;
  step.losses = {{"critic_loss", update.critic_loss},
                 {"policy_loss", update.policy_loss}};
  step.outputs = {{"priority", update.priority}, {"value", update.value}};
  if (update.shift.is_valid()) {
    step.outputs.push_back({"shift", update.shift});
    step.outputs.push_back({"next_shift", update.next_shift});
  }
  for (const auto& [name, loss] : update.representation_losses) {
    step.losses.push_back({name, loss});
  }
  step.AddGradients(update.representation);
  step.AddGradients(update.critic);
  step.AddGradients(update.policy);

  step.start_graph = std::make_unique<Graph>(seed);
  step.start_updates = agents::d4pg::BuildStart(*step.start_graph, config.agent,
                                                spec, support.num_atoms);
  return step;
}

}  // namespace replicant::probe::d4pg
