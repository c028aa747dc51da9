#include "agents/d4pg/prediction.h"

#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::agents::d4pg {
namespace {

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

Output Symlog(Output x) {
  return graph::Mul(graph::Sign(x), graph::Log(graph::Add(graph::Abs(x), 1.0)));
}

// The distribution over the atoms of rewards, [B] -> [B, kNumRewardBins].
Output TwoHot(Output reward, Output logits) {
  const Output x = Symlog(reward);
  // of a return without a future, whatever its distribution would be
  return graph::CategoricalProjection(
      graph::Softmax(logits), x, graph::Mul(x, 0.0), -kMaxSymlog, kMaxSymlog);
}

}  // namespace

Model::Model(Graph& graph, const D4pgConfig& config, const LearningSpec& spec,
             CallSite site)
    : embedding_size_(config.networks.embedding_size) {
  const Graph::SiteScope site_scope(graph, site);
  const Graph::Scope scope(graph, "model");
  head_.emplace(graph, config.networks,
                Head::Options{.hidden_sizes = config.prediction.hidden_sizes,
                              .in = embedding_size_ + spec.task.action_size(),
                              .out = embedding_size_ + kNumRewardBins + 1,
                              .last_layer = {.dtype = spec.dtype}});
  head_->AppendVariables(&variables_);
}

Model::Result Model::operator()(Output embedding, Output action,
                                CallSite site) const {
  const Graph::SiteScope scope(embedding, site);
  const Output y = (*head_)(graph::Concat({embedding, action}, /*axis=*/1));
  return {.embedding = Columns(y, 0, embedding_size_),
          .reward_logits = Columns(y, embedding_size_, kNumRewardBins),
          .discount = graph::Reshape(
              Columns(y, embedding_size_ + kNumRewardBins, 1), {-1})};
}

PredictionLossResult PredictionLoss(const Model& model,
                                    const PredictionInputs& inputs,
                                    const PredictionConfig& config,
                                    CallSite site) {
  const Graph::SiteScope scope(inputs.embedding, site);
  const StepWindow& window = inputs.window;
  std::vector<Output> losses, latent_losses, reward_losses;  // [B] each
  Output embedding = inputs.embedding;
  for (int64_t i = 0; i < config.horizon; ++i) {
    const Model::Result next = model(embedding, StepOf(window.action, i));
    embedding = next.embedding;
    const Output mask = StepOf(window.mask, i);
    const Output latent = graph::ReduceMean(
        graph::Square(graph::Sub(
            embedding, graph::StopGradient(StepOf(inputs.next_embeddings, i)))),
        {.axes = {1}});
    const Output reward = graph::SoftmaxCrossEntropy(
        next.reward_logits,
        TwoHot(StepOf(window.reward, i), next.reward_logits));
    const Output discount =
        graph::Square(graph::Sub(next.discount, StepOf(window.discount, i)));
    const Output loss =
        graph::Add(graph::Add(graph::Mul(latent, config.latent_weight),
                              graph::Mul(reward, config.reward_weight)),
                   graph::Mul(discount, config.discount_weight));
    losses.push_back(graph::Mul(loss, mask));
    latent_losses.push_back(graph::Mul(latent, mask));
    reward_losses.push_back(graph::Mul(reward, mask));
  }
  // a batch has at least one step
  const Output num_steps = graph::ReduceSum(window.mask);
  const auto sum = [](const std::vector<Output>& rows) {
    return graph::ReduceSum(graph::Concat(rows, 0));
  };
  const auto batch = static_cast<double>(inputs.embedding.shape()[0]);
  return {.loss = graph::Mul(sum(losses), 1.0 / batch),
          .latent_loss = graph::Div(sum(latent_losses), num_steps),
          .reward_loss = graph::Div(sum(reward_losses), num_steps)};
}

}  // namespace replicant::agents::d4pg
