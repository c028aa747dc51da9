#include "models/resnet/update.h"

#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/losses.h"
#include "core/graph/ops/reduce.h"
#include "core/nn/optimizers.h"

namespace replicant::models::resnet {
namespace {

// Adds SGD in two nodes: weights have weight decay, norms and biases have none
// (arXiv:1706.02677, section 5.1).
std::vector<Output> AddOptimizer(Graph& graph, const SgdConfig& config,
                                 const nn::TrainedVariables& trained,
                                 Output step) {
  const Output rate = LearningRate(
      config, step, graph::ScalarDType(trained.gradients[0].dtype()));
  std::vector<Output> updates;
  for (const bool has_decay : {true, false}) {
    const nn::TrainedVariables some =
        trained.Only(graph, [&](const graph::VariableSpec& spec) {
          return (spec.shape.rank() > 1) == has_decay;
        });
    updates.push_back(
        nn::Sgd(graph, "optimizer", some.variables, some.gradients, rate,
                {.momentum = config.momentum,
                 .weight_decay = has_decay ? config.weight_decay : 0.0}));
  }
  return updates;
}

}  // namespace

Output LearningRate(const SgdConfig& config, Output step, DType dtype,
                    CallSite site) {
  const Graph::SiteScope scope(step, site);
  std::vector<double> values = {config.learning_rate};
  for (size_t i = 0; i < config.decay_steps.size(); ++i) {
    values.push_back(values.back() * config.decay_factor);
  }
  const Output rate =
      nn::PiecewiseConstantSchedule(step, config.decay_steps, values, dtype);
  if (config.warm_up_steps == 0) return rate;
  // step 0 has 1 / warm_up_steps of the rate, the last step of the warm-up all
  return graph::Mul(rate, nn::LinearSchedule(step, 0.0, 1.0, -1,
                                             config.warm_up_steps - 1, dtype));
}

Batch AddBatchInputs(Graph& graph, const ResNetConfig& config,
                     int64_t batch_size, CallSite site) {
  const Graph::SiteScope scope(graph, site);
  return {.image = graph.Input(
              "image", DType::kU8,
              Shape({batch_size, config.image_size, config.image_size, 3})),
          .label = graph.Input("label", DType::kI32, Shape({batch_size}))};
}

Score BuildScore(Output logits, Output label, const ResNetConfig& config,
                 CallSite site) {
  const Graph::SiteScope scope(logits, site);
  const Output is_right =
      graph::Equal(graph::ArgMax(logits), graph::Cast(label, DType::kI64));
  return {.loss = graph::ReduceMean(graph::SoftmaxCrossEntropyWithLabels(
              logits, label, config.label_smoothing)),
          .accuracy = graph::ReduceMean(graph::Cast(is_right, DType::kF32))};
}

Update BuildUpdate(Graph& graph, const ResNetConfig& config, DType dtype,
                   const Batch& batch, const nn::ReplicaHooks& replicas,
                   CallSite site) {
  const Graph::SiteScope scope(graph, site);
  const ResNet network(graph, config, dtype, replicas);
  const nn::StepCounter step = nn::AddStepCounter(graph, "step");
  Update update;
  update.logits = network(batch.image, &update.updates);
  update.score = BuildScore(update.logits, batch.label, config);
  update.trained = nn::GradientsOf(update.score.loss, "");
  if (replicas.mean_gradients) {
    update.trained.gradients =
        replicas.mean_gradients(update.trained.gradients);
  }
  for (const Output& output :
       AddOptimizer(graph, config.optimizer, update.trained, step.value)) {
    update.updates.push_back(output);
  }
  update.updates.push_back(step.advance);
  return update;
}

}  // namespace replicant::models::resnet
