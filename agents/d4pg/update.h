#pragma once

#include <string>
#include <utility>
#include <vector>

#include "agents/agent.h"
#include "agents/d4pg/config.h"
#include "agents/d4pg/distribution.h"
#include "agents/d4pg/networks.h"
#include "engine/nn/replica_context.h"
#include "engine/nn/trained_variables.h"

// One update of a D4PG learner's networks, as one graph.
namespace replicant::agents::d4pg {

struct Update {
  Output critic_loss;  // []
  Output policy_loss;  // []
  Output priority;     // [B]: new priorities of the sampled items
  Output value;        // [B]: expected return of the sampled actions
  // For the curves; value and td_error are in the task's rewards, also with a
  // running range. Of rows, [B] each: "td_error" and "target_entropy"
  // (CriticLossResult), and "policy_saturation", the share of actions that the
  // policy chooses beyond 0.99 of their range.
  std::vector<std::pair<std::string, Output>> row_diagnostics;
  // Over this replica's rows, [] each: with behaviour cloning its loss, without
  // its weight, "behaviour_cloning_loss", and with the Q-filter
  // "behaviour_cloning_share", the share of prior data's rows that it keeps;
  // "critic_dormant_share" and
  // "policy_dormant_share" (nn::DormantShare()) of the heads' hidden units;
  // with a representation also "representation_dormant_share" of z_s and of the
  // hidden units up to z_sa, and "embedding_rank" (nn::ParticipationRatio()) of
  // z_s.
  std::vector<std::pair<std::string, Output>> diagnostics;
  // RepresentationLossResult::parts; none without a representation.
  std::vector<std::pair<std::string, Output>> representation_losses;
  // i32 [B, 2]: rows and columns by which the frames are shifted; of M images
  // [B, 2 M], each by its own. Invalid without random_shift
  Output shift;
  Output next_shift;
  // Scalars f32[] for the curves: "critic_learning_rate" and
  // "policy_learning_rate"; with clipping also "critic_gradient_norm" and
  // "policy_gradient_norm", the global norms before clipping. The same of
  // "encoder" with a representation. With behaviour cloning
  // "behaviour_cloning_weight".
  std::vector<std::pair<std::string, Output>> scalars;
  // Updates that a run must do (PlanSpec::updates).
  std::vector<Output> updates;

  // Parameters with their gradients before clipping by the global norm. The
  // critic's include those of the encoder if there is no representation.
  nn::TrainedVariables representation;
  nn::TrainedVariables critic;
  nn::TrainedVariables policy;
};

// Adds networks, target networks (the same under "target/"), optimizers
// ("critic_optimizer", "policy_optimizer", with a representation
// "encoder_optimizer") and counter ("step") to the graph, and the whole update:
//
// - features h = encoder(shift(o), s), h' = target encoder(shift'(o'), s'),
//   with the states s in addition to pixels, if there are any; without
//   target.has_encoder the online encoder computes h', and no gradient flows
//   into it from there
// - critic and encoder: CriticLoss() of (h, action)
// - policy: PolicyLoss() of critic(stop(h), policy(stop(h))); it trains neither
//   the encoder (arXiv:2107.09645, section 3.1) nor the critic. With behaviour
//   cloning its weight at this update * BehaviourCloning() is added
// - with a representation, encoder and model: RepresentationLoss() of h and of
//   the target's features of the window's observations, which are shifted like
//   o'. The critic reads stop(z_sa) in place of h and action, everywhere with
//   the z_sa of its own networks, online or target; it does not train the
//   encoder
// - with agent.observations.normalize: running, the numbers of all observations
//   are normalized first (agents/observation_normalizer.h), with a running
//   range rewards are mapped to the atoms (agents/d4pg/return_range.h); both
//   follow their statistics at the end of the update
// - both losses use the parameters from before the update, as in Acme's learner
// - Adam with decoupled weight decay for each, then the targets follow the new
// parameters, and with average_decay the averages of encoder and policy
// ("average/", nn::AverageVariables()) of BuildPolicy()
//
// Differs from arXiv:2501.16142: the encoder is trained in every update, not in
// 250 successive ones after each copy of the targets, on the same rows as the
// critic; one categorical critic of n-step returns takes the place of two of
// squared errors; the target policy has no noise.
//
// Throws what CheckSpec() throws, ShapeError for a batch of other types, and
// InvalidArgument if the graph has one of the names.
Update BuildUpdate(nn::ReplicaContext& replica, const D4pgConfig& config,
                   const LearningSpec& spec, const Support& support,
                   const TransitionBatch& batch,
                   CallSite site = CallSite::Here());

// Adds the networks alone and returns the updates that a new training runs
// once, before its first training update: they copy the online networks to the
// target networks and, with average_decay, to the averages.
std::vector<Output> BuildStart(Graph& graph, const D4pgConfig& config,
                               const LearningSpec& spec, int64_t num_atoms,
                               CallSite site = CallSite::Here());

}  // namespace replicant::agents::d4pg
