#include "agents/d4pg/update.h"

#include <optional>

#include "agents/d4pg/losses.h"
#include "agents/d4pg/representation.h"
#include "agents/d4pg/return_range.h"
#include "agents/images.h"
#include "agents/observation_normalizer.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/random.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/diagnostics.h"
#include "engine/nn/optimizers.h"

namespace replicant::agents::d4pg {
namespace {

// Online and target networks.
struct AllNetworks {
  AllNetworks(Graph& graph, const D4pgConfig& config, const LearningSpec& spec,
              int64_t num_atoms, int num_devices)
      : encoder(graph, config.networks, spec),
        policy(graph, config.networks, spec, encoder.feature_size()),
        critic(graph, config.networks, spec, InputOf(config, encoder),
               num_atoms) {
    const bool has_representation = config.representation.horizon > 0;
    if (has_representation) {
      state_action.emplace(graph, config, spec);
      predictor.emplace(graph, config, spec);
    }
    const Graph::Scope scope(graph, "target");
    if (config.target.has_encoder) {
      target_encoder.emplace(graph, config.networks, spec);
    }
    target_policy.emplace(graph, config.networks, spec, encoder.feature_size());
    target_critic.emplace(graph, config.networks, spec,
                          InputOf(config, encoder), num_atoms);
    if (has_representation) target_state_action.emplace(graph, config, spec);
    // encoder and policy are the first device's
    critic.PlaceOn(num_devices - 1);
    target_critic->PlaceOn(num_devices - 1);
  }

  // Target and online variables, two lists in the same order.
  std::vector<VariableId> Targets() const {
    return Joined({VariablesOf(target_encoder), target_policy->variables(),
                   target_critic->variables(),
                   VariablesOf(target_state_action)});
  }
  std::vector<VariableId> Sources() const {
    return Joined(
        {target_encoder ? encoder.variables() : std::vector<VariableId>{},
         policy.variables(), critic.variables(), VariablesOf(state_action)});
  }

  static CriticInput InputOf(const D4pgConfig& config, const Encoder& encoder) {
    if (config.representation.horizon == 0) {
      return {.feature_size = encoder.feature_size()};
    }
    return {.feature_size = config.representation.state_action_size,
            .has_action = false};
  }
  template <typename Network>
  static std::vector<VariableId> VariablesOf(
      const std::optional<Network>& network) {
    return network ? network->variables() : std::vector<VariableId>{};
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
  // with a representation
  std::optional<StateActionEncoder> state_action;
  std::optional<Predictor> predictor;
  std::optional<Encoder> target_encoder;
  std::optional<PolicyNetwork> target_policy;
  std::optional<CriticNetwork> target_critic;
  std::optional<StateActionEncoder> target_state_action;
};

// As [] of `dtype`.
Output LearningRate(Graph& graph, const OptimizerConfig& config, Output step,
                    DType dtype) {
  switch (config.schedule) {
    case Schedule::kConstant:
      break;
    case Schedule::kLinear:
      return nn::LinearSchedule(step, config.learning_rate,
                                config.final_learning_rate, 0,
                                config.schedule_steps, dtype);
    case Schedule::kCosine:
      return nn::CosineSchedule(step, config.learning_rate,
                                config.schedule_steps, dtype);
  }
  return graph.Scalar(config.learning_rate, dtype);
}

// Random shifts of every image, in whole pixels in [-limit, limit]: [B, 2 M] of
// M images of an observation.
Output ShiftOffsets(const std::string& name, const TransitionBatch& batch,
                    int64_t num_images, int64_t limit, Output step,
                    const nn::ReplicaContext::RowRange& rows) {
  return graph::RandomInt({.name = name,
                           .step = step,
                           .first_row = rows.first_row,
                           .row_offset = rows.row_offset},
                          Shape({batch.reward.shape()[0], 2 * num_images}),
                          -limit, limit + 1);
}

// Shifts each image by its two offsets. offsets [B, 2 M]
Output Shifted(const TaskSpec& task, Output observation, Output offsets) {
  std::vector<Output> images = SplitImages(task, observation);
  const int64_t rows = offsets.shape()[0];
  for (size_t i = 0; i < images.size(); ++i) {
    const Output of_image =
        images.size() == 1
            ? offsets
            : graph::Slice(offsets, {0, 2 * static_cast<int64_t>(i)},
                           {rows, 2});
    images[i] = graph::RandomShift(images[i], of_image);
  }
  return JoinImages(images);
}

// [B, T, ...] -> [B T, ...]
Output RowsOfSteps(Output steps) {
  const Shape& shape = steps.shape();
  std::vector<int64_t> rows(shape.dims().begin() + 1, shape.dims().end());
  rows[0] = shape[0] * shape[1];
  return graph::Reshape(steps, rows);
}

// Shifts the observations of a window alike. [B, T, ...], offsets [B, 2 M]
Output ShiftedWindow(const TaskSpec& task, Output window, Output offsets) {
  const Shape& shape = window.shape();
  const int64_t size = offsets.shape()[1];
  const Output of_steps =
      RowsOfSteps(graph::BroadcastTo(graph::Reshape(offsets, {-1, 1, size}),
                                     Shape({shape[0], shape[1], size})));
  return graph::ReshapeTo(Shifted(task, RowsOfSteps(window), of_steps), shape);
}

// Divides importance weights by the largest one of all replicas, so that they
// only scale down (Prioritized Experience Replay, arXiv:1511.05952,
// section 3.4).
Output NormalizedWeight(const TransitionBatch& batch,
                        nn::ReplicaContext& replica) {
  const Output largest =
      replica.AllMax(graph::ReduceMax(batch.importance_weight));
  return graph::Div(batch.importance_weight, largest);
}

// Share of a row's actions whose size is above 0.99. [B, A] -> [B]
Output Saturation(Graph& graph, Output action) {
  const Output size = graph::Abs(graph::StopGradient(action));
  const Output is_large =
      graph::Greater(size, graph.Scalar(0.99, action.dtype()));
  return graph::ReduceMean(graph::Cast(is_large, action.dtype()),
                           {.axes = {1}});
}

// No gradient flows into the result; none flows into a state anyway.
Features Stopped(const Features& features) {
  return {.encoded = graph::StopGradient(features.encoded),
          .state = features.state};
}

// Features of observations that are a target: no gradient flows into them.
Features TargetFeatures(const AllNetworks& networks, Output observation,
                        Output state) {
  return networks.target_encoder
             ? (*networks.target_encoder)(observation, state)
             : Stopped(networks.encoder(observation, state));
}

// Embeddings of a window's observations, [B, T, F].
Output WindowEmbeddings(const AllNetworks& networks, const StepWindow& window) {
  const Shape& shape = window.observation.shape();
  const Output state =
      window.state.is_valid() ? RowsOfSteps(window.state) : Output{};
  const Features features =
      TargetFeatures(networks, RowsOfSteps(window.observation), state);
  return graph::Reshape(features.encoded,
                        {shape[0], shape[1], networks.encoder.feature_size()});
}

// Those of the observations where returns bootstrap. [B, T, F] -> [B, F]
Features BootstrapFeatures(Output embeddings) {
  const Shape& shape = embeddings.shape();
  const Output first =
      graph::Slice(embeddings, {0, 0, 0}, {shape[0], 1, shape[2]});
  return {.encoded = graph::Reshape(first, {shape[0], shape[2]}), .state = {}};
}

// The critic on the z_sa of features and action, or on them without a
// representation.
CriticNetwork::Result Judge(
    const CriticNetwork& critic,
    const std::optional<StateActionEncoder>& state_action,
    const Features& features, Output action) {
  if (!state_action) return critic(features, action);
  const Output z_sa = (*state_action)(features.encoded, action);
  return critic({.encoded = z_sa, .state = {}}, {});
}

// Adds behaviour cloning to the policy's loss.
void AddBehaviourCloning(Graph& graph, const BehaviourCloningConfig& config,
                         const BehaviourCloningInputs& inputs, Output step,
                         PolicyLossResult* policy, Update* update) {
  const BehaviourCloningResult cloning =
      BehaviourCloning(inputs, config.has_q_filter);
  const Output weight = BehaviourCloningWeight(
      graph, config, step, graph::ScalarDType(cloning.loss.dtype()));
  const Output weighted = graph::Mul(cloning.loss, weight);
  policy->loss = graph::Add(policy->loss, weighted);
  policy->objective = graph::Add(policy->objective, weighted);
  update->diagnostics.emplace_back("behaviour_cloning_loss", cloning.loss);
  if (cloning.share.is_valid()) {
    update->diagnostics.emplace_back("behaviour_cloning_share", cloning.share);
  }
  update->scalars.emplace_back("behaviour_cloning_weight", weight);
}

// Adds all losses and their gradients by the parameters that they train.
void AddLosses(nn::ReplicaContext& replica, const D4pgConfig& config,
               const Support& support, const TransitionBatch& batch,
               const AllNetworks& networks, Output step, Update* update) {
  const Features features = networks.encoder(batch.observation, batch.state);
  const Features stopped = Stopped(features);
  std::optional<RepresentationLossResult> representation;
  Features next_features;
  CriticNetwork::Result judged;
  if (networks.state_action) {
    const Output targets = WindowEmbeddings(networks, *batch.window);
    representation = RepresentationLoss(
        replica, *networks.state_action, *networks.predictor,
        {.z_s = features.encoded, .window = *batch.window, .targets = targets},
        config.representation);
    next_features = BootstrapFeatures(targets);
    const Output z_sa = graph::StopGradient(representation->z_sa);
    judged = networks.critic({.encoded = z_sa, .state = {}}, {});
  } else {
    next_features =
        TargetFeatures(networks, batch.next_observation, batch.next_state);
    judged = networks.critic(features, batch.action);
  }
  const Output next_action = (*networks.target_policy)(next_features).action;
  const Output next_logits =
      Judge(*networks.target_critic, networks.target_state_action,
            next_features, next_action)
          .logits;
  const CriticLossResult critic =
      CriticLoss({.logits = judged.logits,
                  .next_probabilities = graph::Softmax(next_logits),
                  .reward = batch.reward,
                  .discount = batch.discount,
                  .weight = NormalizedWeight(batch, replica)},
                 support, config.priority);

  const PolicyNetwork::Result chosen = networks.policy(stopped);
  const Output value =
      ExpectedValue(graph::Softmax(Judge(networks.critic, networks.state_action,
                                         stopped, chosen.action)
                                       .logits),
                    support);
  PolicyLossResult policy = PolicyLoss(chosen, value, config);
  if (config.behaviour_cloning.is_on()) {
    AddBehaviourCloning(replica.graph(), config.behaviour_cloning,
                        {.action = chosen.action,
                         .demonstration = batch.action,
                         .prior_weight = batch.prior_weight,
                         .demonstration_value = critic.value,
                         .value = value},
                        step, &policy, update);
  }

  update->critic_loss = critic.loss;
  update->policy_loss = policy.loss;
  update->priority = critic.priority;
  update->value = critic.value;
  update->row_diagnostics = {
      {"td_error", critic.td_error},
      {"target_entropy", critic.target_entropy},
      {"policy_saturation", Saturation(replica.graph(), chosen.action)}};
  // a head of one hidden layer has no activation
  for (const auto& [name, hidden] :
       {std::pair{"critic_dormant_share", judged.hidden},
        std::pair{"policy_dormant_share", chosen.hidden}}) {
    const Output share = nn::DormantShare(hidden);
    if (share.is_valid()) update->diagnostics.emplace_back(name, share);
  }
  std::vector<VariableId> of_critic = networks.critic.variables();
  std::vector<VariableId> of_encoder = networks.encoder.variables();
  if (representation) {
    update->representation = nn::GradientsOf(
        representation->loss,
        AllNetworks::Joined({of_encoder, networks.state_action->variables(),
                             networks.predictor->variables()}));
    update->representation_losses = representation->parts;
    update->diagnostics.emplace_back("representation_dormant_share",
                                     nn::DormantShare(representation->hidden));
    update->diagnostics.emplace_back("embedding_rank",
                                     nn::ParticipationRatio(features.encoded));
  } else {
    of_critic = AllNetworks::Joined({of_encoder, of_critic});
  }
  update->critic = nn::GradientsOf(critic.loss, of_critic);
  update->policy =
      nn::GradientsOf(policy.objective, networks.policy.variables());
}

// Adds the optimizer "<network>_optimizer" and its scalars to the update.
void AddAdam(nn::ReplicaContext& replica, const std::string& network,
             const OptimizerConfig& config, const nn::TrainedVariables& trained,
             Output step, Update* update) {
  const Output rate =
      LearningRate(replica.graph(), config, step,
                   graph::ScalarDType(trained.gradients[0].dtype()));
  update->updates.push_back(nn::Adam(
      replica, network + "_optimizer", trained.variables, trained.gradients,
      rate, step, {.weight_decay = config.weight_decay},
      {.max_global_norm = config.max_gradient_norm}));
  update->scalars.emplace_back(network + "_learning_rate", rate);
  // the norm is there already where the gradients are clipped
  if (config.max_gradient_norm > 0.0) {
    update->scalars.emplace_back(network + "_gradient_norm",
                                 graph::GlobalNorm(trained.gradients));
  }
}

template <typename T>
void Append(const std::vector<T>& from, std::vector<T>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

Output AddTargetUpdate(Graph& graph, const TargetConfig& config,
                       const AllNetworks& networks,
                       const nn::StepCounter& step) {
  const std::vector<VariableId> targets = networks.Targets();
  const std::vector<Output> sources = nn::ReadAll(graph, networks.Sources());
  if (config.update == TargetUpdate::kPeriodicCopy) {
    // `advance` counts this update too, so that the first step does not copy
    return graph::PeriodicCopyUpdate(targets, sources, step.advance,
                                     config.period);
  }
  return graph::MovingAverageUpdate(
      targets, sources,
      graph.Scalar(config.rate, graph::ScalarDType(sources[0].dtype())));
}

// Of the networks that act.
std::vector<Output> AverageUpdates(Graph& graph, const D4pgConfig& config,
                                   const AllNetworks& networks, Output step) {
  return nn::AverageVariables(
      graph,
      AllNetworks::Joined(
          {networks.encoder.variables(), networks.policy.variables()}),
      step, config.average_decay);
}

}  // namespace

Update BuildUpdate(nn::ReplicaContext& replica, const D4pgConfig& config,
                   const LearningSpec& spec, const Support& support,
                   const TransitionBatch& batch, CallSite site) {
  Graph& graph = replica.graph();
  const Graph::SiteScope scope(graph, site);
  const auto rows = replica.Rows(batch.reward.shape()[0]);
  const AllNetworks networks(graph, config, spec, support.num_atoms,
                             replica.num_logical_devices());
  const nn::StepCounter step = nn::AddStepCounter(graph, "step");
  Update update;
  TransitionBatch shifted = batch;
  std::optional<ObservationNormalizer> normalizer;
  if (config.observations.is_normalized()) {
    normalizer.emplace(graph, spec.task, spec.dtype, config.observations);
    shifted = (*normalizer)(shifted);
  }
  std::optional<ReturnRange> range;
  if (config.distribution.range == Range::kRunning) {
    range.emplace(graph, config.distribution, spec);
    shifted.reward = range->ToAtoms(batch.reward, batch.discount);
  }
  if (config.random_shift > 0) {
    const TaskSpec& task = spec.task;
    const auto num_images = static_cast<int64_t>(task.AllImages().size());
    update.shift = ShiftOffsets("random_shift", batch, num_images,
                                config.random_shift, step.value, rows);
    update.next_shift = ShiftOffsets("next_random_shift", batch, num_images,
                                     config.random_shift, step.value, rows);
    shifted.observation = Shifted(task, batch.observation, update.shift);
    if (config.representation.horizon > 0) {
      shifted.window->observation =
          ShiftedWindow(task, batch.window->observation, update.next_shift);
    } else {
      shifted.next_observation =
          Shifted(task, batch.next_observation, update.next_shift);
    }
  }
  AddLosses(replica, config, support, shifted, networks, step.value, &update);
  for (nn::TrainedVariables* const trained :
       {&update.representation, &update.critic, &update.policy}) {
    trained->gradients = replica.MeanGradients(trained->gradients);
  }

  if (config.representation.horizon > 0) {
    AddAdam(replica, "encoder", config.encoder_optimizer, update.representation,
            step.value, &update);
  }
  AddAdam(replica, "critic", config.critic_optimizer, update.critic, step.value,
          &update);
  AddAdam(replica, "policy", config.policy_optimizer, update.policy, step.value,
          &update);
  update.updates.push_back(
      AddTargetUpdate(graph, config.target, networks, step));
  if (config.average_decay > 0.0) {
    Append(AverageUpdates(graph, config, networks, step.value),
           &update.updates);
  }
  if (normalizer) {
    Append(normalizer->Update(replica, batch, step.value), &update.updates);
  }
  if (range) {
    Append(range->Update(replica, batch, step.value,
                         config.distribution.range_updates),
           &update.updates);
    Append(range->Scalars(), &update.scalars);
    update.value = range->ToReturns(update.value);
    for (auto& [name, values] : update.row_diagnostics) {
      if (name == "td_error") values = range->ToDifferences(values);
    }
  }
  update.updates.push_back(step.advance);
  return update;
}

std::vector<Output> BuildStart(Graph& graph, const D4pgConfig& config,
                               const LearningSpec& spec, int64_t num_atoms,
                               CallSite site) {
  const Graph::SiteScope scope(graph, site);
  const AllNetworks networks(graph, config, spec, num_atoms,
                             /*num_devices=*/1);
  std::vector<Output> updates = {graph::MovingAverageUpdate(
      networks.Targets(), nn::ReadAll(graph, networks.Sources()),
      graph.Scalar(1.0, graph::ScalarDType(spec.dtype)))};
  if (config.average_decay > 0.0) {
    // the mean of one value
    Append(
        AverageUpdates(graph, config, networks, graph.Scalar(0.0, DType::kI64)),
        &updates);
  }
  return updates;
}

}  // namespace replicant::agents::d4pg
