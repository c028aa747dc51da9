#include "agents/d4pg/representation.h"

#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "base/tensor/host_tensor.h"
#include "base/tensor/reduce_op.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::agents::d4pg {
namespace {

// Takes a row without a target out of a softmax: the cosines over any
// temperature in use are below it.
constexpr double kNever = 1e4;

// Elements [begin, begin + size) of each row. [B, N] -> [B, size]
Output Columns(Output x, int64_t begin, int64_t size) {
  return graph::Slice(x, {0, begin}, {x.shape()[0], size});
}

// Step i of the windows, [B, H, ...] -> [B, ...].
Output StepOf(Output x, int64_t i) {
  std::vector<int64_t> begin(x.shape().rank(), 0);
  std::vector<int64_t> size(x.shape().dims().begin(), x.shape().dims().end());
  begin[1] = i;
  size[1] = 1;
  const Output step = graph::Slice(x, begin, size);
  size.erase(size.begin() + 1);
  return graph::Reshape(step, size);
}

// Rows of length 1. [B, N]
Output Normalized(Output x) {
  const Output square =
      graph::ReduceSum(graph::Square(x), {.axes = {1}, .keep_dims = true});
  return graph::Div(x, graph::Sqrt(graph::Add(square, 1e-24)));
}

// The targets by the step that leads to them; 0 for a step without one.
// targets [B, T, Z], follows [B, T, H] -> [B, H, Z]
Output TargetsByStep(Output targets, Output follows) {
  const int64_t batch = follows.shape()[0];
  const int64_t horizon = follows.shape()[2];
  Output sum;
  for (int64_t t = 0; t < follows.shape()[1]; ++t) {
    const Output target =
        graph::Reshape(StepOf(targets, t), {batch, 1, targets.shape()[2]});
    const Output of_step =
        graph::Reshape(StepOf(follows, t), {batch, horizon, 1});
    const Output term = graph::Mul(target, of_step);
    sum = sum.is_valid() ? graph::Add(sum, term) : term;
  }
  return sum;
}

// How often the losses of each step's target count, [B, H]: 0 without one.
Output TargetWeights(const StepWindow& window) {
  const int64_t batch = window.mask.shape()[0];
  const auto horizon = static_cast<double>(window.mask.shape()[1]);
  const Output first = StepOf(window.follows, 0);
  const Output others =
      graph::Sub(graph::ReduceSum(window.follows, {.axes = {1}}), first);
  const Output other_steps = graph::Sub(window.mask, first);
  const Output num_others = graph::ReduceSum(others, {.axes = {1}});
  const Output count = graph::Div(graph::ReduceSum(other_steps, {.axes = {1}}),
                                  // a window of one step has no others
                                  graph::Clip(num_others, 1.0, horizon));
  return graph::Add(first,
                    graph::Mul(others, graph::Reshape(count, {batch, 1})));
}

// `count` numbers from `first` on.
Output RowNumbers(Graph& graph, int64_t first, int64_t count) {
  HostTensor numbers(DType::kI64, Shape({count}));
  const std::span values = numbers.MutableSpan<int64_t>();
  std::iota(values.begin(), values.end(), first);
  return graph.Constant(numbers.view());
}

// The targets of all N rows, among which InfoNCE chooses.
struct Candidates {
  Output targets;     // [N, H, Z]
  Output has_target;  // [N, H], 0 or 1
  int64_t first_row;  // of this replica's
};

// The rows of all replicas. targets [B, H, Z], has_target [B, H]
Candidates AllRows(nn::ReplicaContext& replica, Output targets,
                   Output has_target) {
  const Shape& shape = targets.shape();
  return {.targets = graph::Reshape(replica.AllGather(targets),
                                    {-1, shape[1], shape[2]}),
          .has_target =
              graph::Reshape(replica.AllGather(has_target), {-1, shape[1]}),
          .first_row = replica.Rows(shape[0]).first_row};
}

// InfoNCE of each row of this replica after step i. z_s [B, Z] -> [B]
Output ContrastLoss(Output z_s, const Candidates& all, int64_t i,
                    double temperature) {
  const Output cosines =
      graph::MatMul(Normalized(z_s), Normalized(StepOf(all.targets, i)),
                    {.transpose_b = true});
  const Output without_target = graph::Reshape(
      graph::Affine(StepOf(all.has_target, i), -kNever, kNever), {1, -1});
  return graph::SoftmaxCrossEntropyWithLabels(
      graph::Sub(graph::Mul(cosines, 1.0 / temperature), without_target),
      RowNumbers(*z_s.graph, all.first_row, z_s.shape()[0]));
}

}  // namespace

Output TwoHotReward(Output reward, CallSite site) {
  const Graph::SiteScope scope(reward, site);
  // atom i is symexp(i gap), i = -n ... n; |reward| is between atoms k and
  // k + 1, at `share` of the way
  constexpr int64_t kN = kNumRewardBins / 2;
  constexpr double kGap = kMaxSymlog / static_cast<double>(kN);
  const Output size =
      graph::Clip(graph::Abs(reward), 0.0, std::expm1(kMaxSymlog));
  const Output u = graph::Mul(graph::Log(graph::Add(size, 1.0)), 1.0 / kGap);
  const Output k = graph::Sub(
      u, graph::Modulo(u, reward.graph->Scalar(1.0, reward.dtype())));
  const auto atom = [&](double offset) {
    return graph::Add(graph::Exp(graph::Affine(k, kGap, kGap * offset)), -1.0);
  };
  const Output low = atom(0.0);
  const Output share =
      graph::Div(graph::Sub(size, low), graph::Sub(atom(1.0), low));
  const Output place = graph::Mul(graph::Sign(reward), graph::Add(k, share));
  // [B, 1] of weight, all of it at the place: the projection of a return
  // without a future
  const Output zeros = graph::Mul(place, 0.0);
  const Output anything = graph::Affine(
      graph::BroadcastTo(graph::Reshape(zeros, {-1, 1}),
                         Shape({reward.shape()[0], kNumRewardBins})),
      1.0, 1.0 / static_cast<double>(kNumRewardBins));
  return graph::CategoricalProjection(anything, place, zeros,
                                      -static_cast<double>(kN),
                                      static_cast<double>(kN));
}

StateActionEncoder::StateActionEncoder(Graph& graph, const D4pgConfig& config,
                                       const LearningSpec& spec,
                                       CallSite site) {
  const Graph::SiteScope site_scope(graph, site);
  const Graph::Scope scope(graph, "representation");
  const RepresentationConfig& sizes = config.representation;
  const nn::LayerOptions options =
      LayerOptionsOf(config.networks, /*gain=*/1.0, spec.dtype);
  const auto append = [&](const std::vector<VariableId>& variables) {
    variables_.insert(variables_.end(), variables.begin(), variables.end());
  };
  {
    const Graph::Scope action_scope(graph, "action");
    action_.emplace(graph, "0", spec.task.action_size(),
                    sizes.action_embedding_size, options);
    append(action_->variables());
  }
  const Graph::Scope joint_scope(graph, "joint");
  int64_t in = config.networks.embedding_size + sizes.action_embedding_size;
  for (const int64_t size : sizes.hidden_sizes) {
    // linear, norm and elu are three modules
    const size_t module = 3 * norms_.size();
    layers_.emplace_back(graph, std::to_string(module), in, size, options);
    norms_.emplace_back(graph, std::to_string(module + 1), size, spec.dtype);
    append(layers_.back().variables());
    append(norms_.back().variables());
    in = size;
  }
  layers_.emplace_back(graph, std::to_string(3 * norms_.size()), in,
                       sizes.state_action_size, options);
  append(layers_.back().variables());
}

Output StateActionEncoder::operator()(Output z_s, Output action,
                                      std::vector<Output>* hidden,
                                      CallSite site) const {
  const Graph::SiteScope scope(z_s, site);
  Output x = graph::Concat({z_s, graph::Elu((*action_)(action))}, /*axis=*/1);
  for (size_t i = 0; i < norms_.size(); ++i) {
    x = graph::Elu(norms_[i](layers_[i](x)));
    if (hidden != nullptr) hidden->push_back(x);
  }
  return layers_.back()(x);
}

Predictor::Predictor(Graph& graph, const D4pgConfig& config,
                     const LearningSpec& spec, CallSite site)
    : z_s_size_(config.networks.embedding_size) {
  const Graph::SiteScope site_scope(graph, site);
  const Graph::Scope scope(graph, "representation");
  linear_.emplace(graph, "predictor", config.representation.state_action_size,
                  z_s_size_ + kNumRewardBins + 1,
                  LayerOptionsOf(config.networks, /*gain=*/1.0, spec.dtype));
}

Predictor::Result Predictor::operator()(Output z_sa, CallSite site) const {
  const Graph::SiteScope scope(z_sa, site);
  const Output y = (*linear_)(z_sa);
  return {
      .z_s = Columns(y, 0, z_s_size_),
      .reward_logits = Columns(y, z_s_size_, kNumRewardBins),
      .end = graph::Reshape(Columns(y, z_s_size_ + kNumRewardBins, 1), {-1})};
}

RepresentationLossResult RepresentationLoss(nn::ReplicaContext& replica,
                                            const StateActionEncoder& encoder,
                                            const Predictor& predictor,
                                            const RepresentationInputs& inputs,
                                            const RepresentationConfig& config,
                                            CallSite site) {
  const Graph::SiteScope scope(inputs.z_s, site);
  const StepWindow& window = inputs.window;
  struct Part {
    std::string name;
    double weight;
    Output counts;                  // how often a step counts, [B, H]
    std::vector<Output> rows = {};  // by step, [B] each
  };
  const Output of_targets = TargetWeights(window);
  std::vector<Part> parts = {{"latent_loss", config.latent_weight, of_targets},
                             {"reward_loss", config.reward_weight, window.mask},
                             {"end_loss", config.end_weight, window.mask}};
  const Output targets =
      graph::StopGradient(TargetsByStep(inputs.targets, window.follows));
  std::optional<Candidates> candidates;
  if (config.contrast_weight > 0.0) {
    parts.push_back({"contrast_loss", config.contrast_weight, of_targets});
    candidates = AllRows(replica, targets,
                         graph::ReduceSum(window.follows, {.axes = {1}}));
  }
  RepresentationLossResult result;
  result.hidden.push_back(inputs.z_s);
  Output z_s = inputs.z_s;
  for (int64_t i = 0; i < config.horizon; ++i) {
    const Output z_sa = encoder(z_s, StepOf(window.action, i),
                                i == 0 ? &result.hidden : nullptr);
    if (i == 0) result.z_sa = z_sa;
    const Predictor::Result next = predictor(z_sa);
    z_s = next.z_s;
    const Output target = StepOf(targets, i);
    const Output end = graph::Affine(StepOf(window.discount, i), -1.0, 1.0);
    std::vector<Output> losses = {
        graph::ReduceMean(graph::Square(graph::Sub(z_s, target)),
                          {.axes = {1}}),
        graph::SoftmaxCrossEntropy(next.reward_logits,
                                   TwoHotReward(StepOf(window.reward, i))),
        graph::Square(graph::Sub(next.end, end))};
    if (candidates) {
      losses.push_back(
          ContrastLoss(z_s, *candidates, i, config.contrast_temperature));
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      parts[p].rows.push_back(
          graph::Mul(losses[p], StepOf(parts[p].counts, i)));
    }
  }
  // a batch has at least one step. The mean over all replicas, so that the mean
  // of their parts is the mean over all steps
  const Output num_steps =
      replica.AllReduce(graph::ReduceSum(window.mask), ReduceOp::kMean);
  const auto batch = static_cast<double>(inputs.z_s.shape()[0]);
  for (const Part& part : parts) {
    const Output sum = graph::ReduceSum(graph::Concat(part.rows, 0));
    const Output weighted = graph::Mul(sum, part.weight / batch);
    result.loss =
        result.loss.is_valid() ? graph::Add(result.loss, weighted) : weighted;
    result.parts.emplace_back(part.name, graph::Div(sum, num_steps));
  }
  return result;
}

}  // namespace replicant::agents::d4pg
