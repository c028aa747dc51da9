#include "agents/d4pg/losses.h"

#include "engine/graph/gradients.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/optimizers.h"

namespace replicant::agents::d4pg {

CriticLossResult CriticLoss(const CriticLossInputs& inputs,
                            const Support& support, Priority priority,
                            CallSite site) {
  const Graph::SiteScope scope(inputs.logits, site);
  const Output target = graph::StopGradient(graph::CategoricalProjection(
      inputs.next_probabilities, inputs.reward, inputs.discount, support.v_min,
      support.v_max));
  const Output cross_entropy =
      graph::SoftmaxCrossEntropy(inputs.logits, target);
  CriticLossResult result;
  result.loss = graph::ReduceMean(graph::Mul(cross_entropy, inputs.weight));
  result.value = ExpectedValue(graph::Softmax(inputs.logits), support);
  result.td_error = graph::StopGradient(
      graph::Sub(ExpectedValue(target, support), result.value));
  // 0 log 0 = 0
  const Output log = graph::Log(graph::Clip(target, 1e-30, 1.0));
  result.target_entropy =
      graph::Neg(graph::ReduceSum(graph::Mul(target, log), {.axes = {1}}));
  if (priority == Priority::kCrossEntropy) {
    result.priority = graph::StopGradient(cross_entropy);
  } else {
    result.priority = graph::Abs(result.td_error);
    if (priority == Priority::kLap) {
      // LAP (arXiv:2007.06049), section 4
      result.priority =
          graph::Add(graph::Relu(graph::Add(result.priority, -1.0)), 1.0);
    }
  }
  return result;
}

PolicyLossResult PolicyLoss(const PolicyNetwork::Result& policy, Output value,
                            const D4pgConfig& config, CallSite site) {
  const Graph::SiteScope scope(value, site);
  PolicyLossResult result;
  result.loss = graph::Neg(graph::ReduceMean(value));
  result.objective = result.loss;
  if (config.max_action_gradient_norm > 0.0) {
    // the gradient of action * clipped by the action is `clipped`
    const Output gradient =
        graph::Gradients(graph::ReduceSum(value), {policy.action})[0];
    const Output clipped = graph::StopGradient(
        graph::ClipRowsByNorm(gradient, config.max_action_gradient_norm));
    const Output rows =
        graph::ReduceSum(graph::Mul(policy.action, clipped), {.axes = {1}});
    result.objective = graph::Neg(graph::ReduceMean(rows));
  }
  if (config.pre_tanh_penalty_weight > 0.0) {
    const Output excess = graph::Relu(graph::Add(
        graph::Abs(policy.pre_tanh), -config.pre_tanh_penalty_limit));
    const Output penalty = graph::Mul(graph::ReduceMean(graph::Square(excess)),
                                      config.pre_tanh_penalty_weight);
    result.loss = graph::Add(result.loss, penalty);
    result.objective = graph::Add(result.objective, penalty);
  }
  return result;
}

BehaviourCloningResult BehaviourCloning(const BehaviourCloningInputs& inputs,
                                        bool has_q_filter, CallSite site) {
  const Graph::SiteScope scope(inputs.action, site);
  BehaviourCloningResult result;
  Output weight = inputs.prior_weight;
  if (has_q_filter) {
    const Output is_better =
        graph::Greater(graph::StopGradient(inputs.demonstration_value),
                       graph::StopGradient(inputs.value));
    weight = graph::Mul(weight, graph::Cast(is_better, weight.dtype()));
    result.share = graph::ReduceMean(weight);
  }
  const Output error = graph::ReduceMean(
      graph::Square(graph::Sub(inputs.action, inputs.demonstration)),
      {.axes = {1}});
  result.loss = graph::ReduceMean(graph::Mul(weight, error));
  return result;
}

Output BehaviourCloningWeight(Graph& graph,
                              const BehaviourCloningConfig& config, Output step,
                              DType dtype) {
  if (config.decay_updates == 0) return graph.Scalar(config.weight, dtype);
  return nn::LinearSchedule(step, config.weight, config.final_weight,
                            config.decay_start,
                            config.decay_start + config.decay_updates, dtype);
}

}  // namespace replicant::agents::d4pg
