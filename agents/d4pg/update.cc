#include "agents/d4pg/update.h"

#include <optional>

#include "agents/d4pg/losses.h"
#include "core/graph/gradients.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/image.h"
#include "core/graph/ops/losses.h"
#include "core/graph/ops/optimizer.h"
#include "core/graph/ops/random.h"
#include "core/graph/ops/reduce.h"
#include "core/graph/ops/shape_ops.h"
#include "core/nn/optimizers.h"

namespace replicant::agents::d4pg {
namespace {

// Online and target networks.
struct AllNetworks {
  AllNetworks(Graph& graph, const D4pgConfig& config, const AgentSpec& spec,
              int64_t num_atoms, CallSite site)
      : encoder(graph, config.networks, spec, site),
        policy(graph, config.networks, spec, encoder.feature_size(), site),
        critic(graph, config.networks, spec, encoder.feature_size(), num_atoms,
               site) {
    const Graph::Scope scope(graph, "target");
    if (config.target.has_encoder) {
      target_encoder.emplace(graph, config.networks, spec, site);
    }
    target_policy.emplace(graph, config.networks, spec, encoder.feature_size(),
                          site);
    target_critic.emplace(graph, config.networks, spec, encoder.feature_size(),
                          num_atoms, site);
  }

  // Pairs of target and online variables, in two lists of one order.
  std::vector<VariableId> Targets() const {
    return Joined({target_encoder ? target_encoder->variables()
                                  : std::vector<VariableId>{},
                   target_policy->variables(), target_critic->variables()});
  }
  std::vector<VariableId> Sources() const {
    return Joined(
        {target_encoder ? encoder.variables() : std::vector<VariableId>{},
         policy.variables(), critic.variables()});
  }

  static std::vector<VariableId> Joined(
      std::initializer_list<std::vector<VariableId>> lists) {
    std::vector<VariableId> all;
    for (const auto& list : lists) {
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }

  Encoder encoder;
  PolicyNetwork policy;
  CriticNetwork critic;
  std::optional<Encoder> target_encoder;
  std::optional<PolicyNetwork> target_policy;
  std::optional<CriticNetwork> target_critic;
};

std::vector<Output> ReadAll(Graph& graph,
                            const std::vector<VariableId>& variables,
                            CallSite site) {
  std::vector<Output> values;
  values.reserve(variables.size());
  for (const VariableId variable : variables) {
    values.push_back(graph.Read(variable, site));
  }
  return values;
}

Output LearningRate(Graph& graph, const OptimizerConfig& config, Output step,
                    CallSite site) {
  switch (config.schedule) {
    case Schedule::kConstant:
      break;
    case Schedule::kLinear:
      return nn::LinearSchedule(step, config.learning_rate,
                                config.final_learning_rate, 0,
                                config.schedule_steps, site);
    case Schedule::kCosine:
      return nn::CosineSchedule(step, config.learning_rate,
                                config.schedule_steps, site);
  }
  return graph.Scalar(config.learning_rate, DType::kF32, site);
}

// Random whole pixels in [-limit, limit] for every image.
Output ShiftOffsets(const std::string& name, const Batch& batch, int64_t limit,
                    Output step, const nn::ReplicaHooks& hooks, CallSite site) {
  return graph::RandomInt({.name = name,
                           .step = step,
                           .first_row = hooks.first_row,
                           .row_offset = hooks.row_offset},
                          Shape({batch.reward.shape()[0], 2}), -limit,
                          limit + 1, site);
}

// Importance weights divided by the largest: they only ever scale down
// (Prioritized Experience Replay, arXiv:1511.05952, section 3.4).
Output NormalizedWeight(const Batch& batch, const nn::ReplicaHooks& hooks,
                        CallSite site) {
  Output largest = graph::ReduceMax(batch.importance_weight, {}, site);
  if (hooks.max) largest = hooks.max(largest);
  return graph::Div(batch.importance_weight, largest, site);
}

// Both losses, and their gradients by the parameters.
void AddLosses(const D4pgConfig& config, const Support& support,
               const Batch& batch, const AllNetworks& networks,
               const nn::ReplicaHooks& hooks, CallSite site, Update* update) {
  Graph& graph = *batch.reward.graph;
  const Output features = networks.encoder(batch.observation, site);
  const Output next_features =
      networks.target_encoder
          ? (*networks.target_encoder)(batch.next_observation, site)
          : graph::StopGradient(networks.encoder(batch.next_observation, site),
                                site);
  const Output next_action =
      (*networks.target_policy)(next_features, site).action;
  const Output next_logits =
      (*networks.target_critic)(next_features, next_action, site);
  const CriticLossResult critic =
      CriticLoss({.logits = networks.critic(features, batch.action, site),
                  .next_probabilities = graph::Softmax(next_logits, site),
                  .reward = batch.reward,
                  .discount = batch.discount,
                  .weight = NormalizedWeight(batch, hooks, site)},
                 support, config.priority, site);

  const Output stopped = graph::StopGradient(features, site);
  const PolicyNetwork::Result chosen = networks.policy(stopped, site);
  const Output value = ExpectedValue(
      graph::Softmax(networks.critic(stopped, chosen.action, site), site),
      support, site);
  const PolicyLossResult policy = PolicyLoss(chosen, value, config, site);

  update->critic_loss = critic.loss;
  update->policy_loss = policy.loss;
  update->priority = critic.priority;
  update->value = critic.value;
  update->critic_gradients = graph::Gradients(
      critic.loss, ReadAll(graph, update->critic_parameters, site), site);
  update->policy_gradients = graph::Gradients(
      policy.objective, ReadAll(graph, update->policy_parameters, site), site);
}

// Makes the gradients those of all replicas, in one call.
void ReduceGradients(const nn::ReplicaHooks& hooks, Update* update) {
  if (!hooks.mean_gradients) return;
  std::vector<Output> all = update->critic_gradients;
  all.insert(all.end(), update->policy_gradients.begin(),
             update->policy_gradients.end());
  all = hooks.mean_gradients(all);
  const auto middle =
      all.begin() + static_cast<int64_t>(update->critic_gradients.size());
  update->critic_gradients.assign(all.begin(), middle);
  update->policy_gradients.assign(middle, all.end());
}

Output AddAdam(Graph& graph, const std::string& name,
               const OptimizerConfig& config,
               const std::vector<VariableId>& parameters,
               const std::vector<Output>& gradients, Output step,
               CallSite site) {
  return nn::Adam(graph, name, parameters, gradients,
                  LearningRate(graph, config, step, site), step, {},
                  {.max_global_norm = config.max_gradient_norm}, site);
}

Output AddTargetUpdate(Graph& graph, const TargetConfig& config,
                       const AllNetworks& networks, const nn::StepCounter& step,
                       CallSite site) {
  const std::vector<VariableId> targets = networks.Targets();
  const std::vector<Output> sources = ReadAll(graph, networks.Sources(), site);
  if (config.update == TargetUpdate::kPeriodicCopy) {
    // counted with this update, so that the first copy is not at once
    return graph::PeriodicCopyUpdate(targets, sources, step.advance,
                                     config.period, site);
  }
  return graph::MovingAverageUpdate(
      targets, sources, graph.Scalar(config.rate, DType::kF32, site), site);
}

}  // namespace

Batch AddBatchInputs(Graph& graph, const NetworkConfig& config,
                     const AgentSpec& spec, int64_t batch_size, CallSite site) {
  const graph::TensorType observation =
      spec.ObservationType(config, batch_size);
  const Shape per_row({batch_size});
  Batch batch;
  batch.observation =
      graph.Input("observation", observation.dtype, observation.shape, site);
  batch.action = graph.Input("action", spec.dtype,
                             Shape({batch_size, spec.action_size}), site);
  batch.reward = graph.Input("reward", spec.dtype, per_row, site);
  batch.discount = graph.Input("discount", spec.dtype, per_row, site);
  batch.next_observation = graph.Input("next_observation", observation.dtype,
                                       observation.shape, site);
  batch.importance_weight =
      graph.Input("importance_weight", spec.dtype, per_row, site);
  return batch;
}

Update BuildUpdate(Graph& graph, const D4pgConfig& config,
                   const AgentSpec& spec, const Support& support,
                   const Batch& batch, const nn::ReplicaHooks& hooks,
                   CallSite site) {
  const AllNetworks networks(graph, config, spec, support.num_atoms, site);
  const nn::StepCounter step = nn::AddStepCounter(graph, "step", site);
  Update update;
  update.critic_parameters = AllNetworks::Joined(
      {networks.encoder.variables(), networks.critic.variables()});
  update.policy_parameters = networks.policy.variables();

  Batch shifted = batch;
  if (config.random_shift > 0) {
    update.shift = ShiftOffsets("random_shift", batch, config.random_shift,
                                step.value, hooks, site);
    update.next_shift =
        ShiftOffsets("next_random_shift", batch, config.random_shift,
                     step.value, hooks, site);
    shifted.observation =
        graph::RandomShift(batch.observation, update.shift, site);
    shifted.next_observation =
        graph::RandomShift(batch.next_observation, update.next_shift, site);
  }
  AddLosses(config, support, shifted, networks, hooks, site, &update);
  ReduceGradients(hooks, &update);

  update.updates = {AddAdam(graph, "critic_optimizer", config.critic_optimizer,
                            update.critic_parameters, update.critic_gradients,
                            step.value, site),
                    AddAdam(graph, "policy_optimizer", config.policy_optimizer,
                            update.policy_parameters, update.policy_gradients,
                            step.value, site),
                    AddTargetUpdate(graph, config.target, networks, step, site),
                    step.advance};
  return update;
}

Output BuildTargetCopy(Graph& graph, const D4pgConfig& config,
                       const AgentSpec& spec, int64_t num_atoms,
                       CallSite site) {
  const AllNetworks networks(graph, config, spec, num_atoms, site);
  return graph::MovingAverageUpdate(networks.Targets(),
                                    ReadAll(graph, networks.Sources(), site),
                                    graph.Scalar(1.0, DType::kF32, site), site);
}

}  // namespace replicant::agents::d4pg
