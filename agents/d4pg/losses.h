#pragma once

#include "agents/d4pg/config.h"
#include "agents/d4pg/distribution.h"
#include "agents/d4pg/networks.h"

// The losses of D4PG (arXiv:1804.08617, algorithm 1). Letters: B batch, A
// actions, K atoms.
namespace replicant::agents::d4pg {

struct CriticLossInputs {
  Output logits;              // [B, K], of the sampled actions
  Output next_probabilities;  // [B, K], of the target networks
  Output reward;              // [B], n-step
  Output discount;            // [B], n-step, 0 after a terminal step
  Output weight;              // [B], importance weights, at most 1
};

struct CriticLossResult {
  // mean_b weight[b] * H(m[b], softmax(logits[b])), m the projection of
  // reward + discount * z onto the atoms; no gradient flows into m. []
  Output loss;
  // new priorities by the rule `priority`, [B]; no gradient flows through them
  Output priority;
  // For the curves, [B] each: the expected return of the sampled actions, the
  // target's expected return minus that, and the target's entropy in nats.
  Output value;
  Output td_error;
  Output target_entropy;
};
CriticLossResult CriticLoss(const CriticLossInputs& inputs,
                            const Support& support, Priority priority,
                            CallSite site = CallSite::Here());

struct PolicyLossResult {
  // -mean_b value[b] + penalty, []
  Output loss;
  // A scalar for Gradients() only. Its gradient by the policy's parameters
  // equals the gradient of `loss`, but with dvalue/daction clipped per row.
  Output objective;
};
// `value` [B] is the critic's expected return of policy.action and must depend
// on that output.
//
//   penalty = weight * mean(max(|pre_tanh| - limit, 0)^2)
PolicyLossResult PolicyLoss(const PolicyNetwork::Result& policy, Output value,
                            const D4pgConfig& config,
                            CallSite site = CallSite::Here());

struct BehaviourCloningInputs {
  Output action;         // [B, A], the policy's
  Output demonstration;  // [B, A], the batch's
  Output prior_weight;   // [B], see TransitionBatch
  // expected returns of demonstration and action, [B]
  Output demonstration_value;
  Output value;
};

struct BehaviourCloningResult {
  // mean_b prior_weight[b] * kept[b] * mean_a (action - demonstration)^2, []
  Output loss;
  // mean_b prior_weight[b] * kept[b]: the share of prior data's rows that
  // count, []. Invalid without the filter.
  Output share;
};
// kept[b] is 1, with the Q-filter only where demonstration_value > value. No
// gradient flows through it, nor into the demonstration.
//
// Source: loss and filter arXiv:1709.10089, sections IV.B and IV.C. Differs
// from it: the loss is the mean of rows and numbers of an action, not their
// sum.
BehaviourCloningResult BehaviourCloning(const BehaviourCloningInputs& inputs,
                                        bool has_q_filter,
                                        CallSite site = CallSite::Here());

// The weight of behaviour cloning after `step` updates (i64 []), as [] of
// `dtype`.
Output BehaviourCloningWeight(Graph& graph,
                              const BehaviourCloningConfig& config, Output step,
                              DType dtype);

}  // namespace replicant::agents::d4pg
