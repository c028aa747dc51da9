#pragma once

#include <vector>

#include "agents/d4pg/config.h"
#include "agents/d4pg/distribution.h"
#include "agents/d4pg/networks.h"
#include "core/nn/replica_hooks.h"

// One update of everything that a D4PG learner has, as one graph.
namespace replicant::agents::d4pg {

// A batch of n-step transitions. Inputs of the graph, or computed in it.
struct Batch {
  Output observation;        // AgentSpec::ObservationType()
  Output action;             // [B, A], in [-1, 1]
  Output reward;             // [B], the n-step return's rewards
  Output discount;           // [B], product of the n discounts; 0 if terminal
  Output next_observation;   // as observation: where the return bootstraps
  Output importance_weight;  // [B], > 0; divided by the largest here
};

// Adds inputs "observation", "action", ... for B transitions.
Batch AddBatchInputs(Graph& graph, const NetworkConfig& config,
                     const AgentSpec& spec, int64_t batch_size,
                     CallSite site = CallSite::Here());

struct Update {
  Output critic_loss;  // []
  Output policy_loss;  // []
  Output priority;     // [B]: what the replay is told of the sampled items
  Output value;        // [B]: expected return of the sampled actions
  // i32 [B, 2]: by how many rows and columns the frames were moved; not valid
  // without random_shift
  Output shift;
  Output next_shift;
  // What must be run: PlanSpec::updates.
  std::vector<Output> updates;

  // Trained by the critic's loss (encoder among them) and by the policy's,
  // each with its gradient, before clipping by the global norm.
  std::vector<VariableId> critic_parameters;
  std::vector<VariableId> policy_parameters;
  std::vector<Output> critic_gradients;
  std::vector<Output> policy_gradients;
};

// Adds networks, target networks (the same under "target/"), optimizers
// ("critic_optimizer", "policy_optimizer") and counter ("step") to the graph,
// and the whole update:
//
// - features h = encoder(shift(o)), h' = target encoder(shift'(o')); with
//   target.has_encoder off the online one makes h', without a gradient
// - critic and encoder: CriticLoss() of (h, action)
// - policy: PolicyLoss() of critic(stop(h), policy(stop(h))); the encoder does
//   not learn from it (arXiv:2107.09645, section 3.1), nor does the critic
// - both losses see the parameters from before the update, as Acme's learner
// - Adam for each, then the targets follow the new parameters
//
// Throws what CheckSpec() throws, ShapeError for a batch of other types, and
// InvalidArgument if the graph has one of the names.
Update BuildUpdate(Graph& graph, const D4pgConfig& config,
                   const AgentSpec& spec, const Support& support,
                   const Batch& batch, const nn::ReplicaHooks& hooks = {},
                   CallSite site = CallSite::Here());

// Adds the networks alone and returns the update that makes the target networks
// equal to the online ones: run once, before the first update of a new run.
Output BuildTargetCopy(Graph& graph, const D4pgConfig& config,
                       const AgentSpec& spec, int64_t num_atoms,
                       CallSite site = CallSite::Here());

}  // namespace replicant::agents::d4pg
