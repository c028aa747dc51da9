#include "models/resnet/update.h"

#include <fmt/format.h>

#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/single_replica.h"

namespace replicant::models::resnet {
namespace {

// The gradient of a loss with weight decay, times the trust ratio
//
//   trust_coefficient * |p| / (|g| + weight_decay * |p|)
//
// of LARS (arXiv:1708.03888, section 4); times 1 where a norm is 0.
Output LarsGradient(Graph& graph, const SgdConfig& config,
                    nn::VariableId variable, Output gradient) {
  const Output value = graph.Read(variable);
  const DType dtype = graph::ScalarDType(value.dtype());
  const Output size = graph::GlobalNorm({value});
  const Output gradient_size = graph::GlobalNorm({gradient});
  const Output ratio = graph::Div(
      graph::Mul(size, config.trust_coefficient),
      graph::Add(gradient_size, graph::Mul(size, config.weight_decay)));
  const Output zero = graph.Scalar(0.0, dtype);
  const Output is_usable =
      graph::Mul(graph::Cast(graph::Greater(size, zero), dtype),
                 graph::Cast(graph::Greater(gradient_size, zero), dtype));
  const Output factor = graph::Where(graph::Greater(is_usable, zero), ratio,
                                     graph.Scalar(1.0, dtype));
  const Output decayed =
      graph::Add(gradient, graph::Mul(value, config.weight_decay));
  return graph::Mul(
      decayed,
      graph::BroadcastTo(graph::Cast(factor, value.dtype()), value.shape()));
}

// Adds SGD in two nodes: weights have weight decay, norms and biases have none
// (arXiv:1706.02677, section 5.1).
std::vector<Output> AddOptimizer(nn::ReplicaContext& replica,
                                 const SgdConfig& config,
                                 const nn::TrainedVariables& trained,
                                 Output step) {
  Graph& graph = replica.graph();
  const Output rate = LearningRate(
      config, step, graph::ScalarDType(trained.gradients[0].dtype()));
  std::vector<Output> updates;
  for (const bool has_decay : {true, false}) {
    nn::TrainedVariables some =
        trained.Only(graph, [&](const graph::VariableSpec& spec) {
          return (spec.shape.rank() > 1) == has_decay;
        });
    const bool is_lars = has_decay && config.kind == OptimizerKind::kLars;
    for (size_t i = 0; is_lars && i < some.variables.size(); ++i) {
      some.gradients[i] =
          LarsGradient(graph, config, some.variables[i], some.gradients[i]);
    }
    updates.push_back(nn::Sgd(
        replica, "optimizer", some.variables, some.gradients, rate,
        {.momentum = config.momentum,
         .weight_decay = has_decay && !is_lars ? config.weight_decay : 0.0}));
  }
  return updates;
}

// Step 0 has 1 / warm_up_steps of the rate, the last step of the warm-up all.
Output WithWarmUp(const SgdConfig& config, Output rate, Output step,
                  DType dtype) {
  if (config.warm_up_steps == 0) return rate;
  return graph::Mul(rate, nn::LinearSchedule(step, 0.0, 1.0, -1,
                                             config.warm_up_steps - 1, dtype));
}

// Rows [begin, begin + count) of a tensor.
Output RowsOf(Output x, int64_t begin, int64_t count) {
  std::vector<int64_t> first(static_cast<size_t>(x.shape().rank()), 0);
  first[0] = begin;
  const Shape part = x.shape().WithLeading(count);
  return graph::Slice(x, first, {part.dims().begin(), part.dims().end()});
}

// The logits and the score of the batch, micro-batch by micro-batch.
std::pair<Output, Score> BuildForward(const ResNet& network,
                                      const ResNetConfig& config,
                                      const Batch& batch,
                                      std::vector<Output>* updates) {
  const int64_t parts = config.micro_batches;
  const int64_t rows = batch.label.shape()[0];
  if (rows % parts != 0) {
    throw InvalidArgument(fmt::format(
        "micro_batches: the {} rows of a replica cannot be divided evenly into "
        "{}",
        rows, parts));
  }
  Graph& graph = *batch.image.graph;
  if (parts == 1) {
    const Output logits = network(batch.image, updates);
    const Graph::DeviceScope device = network.LastDevice(graph);
    return {logits, BuildScore(logits, batch.label, config)};
  }
  std::vector<Output> logits;
  Score sum;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t count = rows / parts;
    logits.push_back(network(RowsOf(batch.image, i * count, count), updates));
    // the first device must not wait for the last one between micro-batches
    const Graph::DeviceScope device = network.LastDevice(graph);
    const Score own = BuildScore(logits.back(),
                                 RowsOf(batch.label, i * count, count), config);
    sum.loss = i == 0 ? own.loss : graph::Add(sum.loss, own.loss);
    sum.accuracy =
        i == 0 ? own.accuracy : graph::Add(sum.accuracy, own.accuracy);
  }
  const Graph::DeviceScope device = network.LastDevice(graph);
  const double share = 1.0 / static_cast<double>(parts);
  return {graph::Concat(logits, 0),
          {.loss = graph::Mul(sum.loss, share),
           .accuracy = graph::Mul(sum.accuracy, share)}};
}

}  // namespace

Output LearningRate(const SgdConfig& config, Output step, DType dtype,
                    CallSite site) {
  const Graph::SiteScope scope(step, site);
  if (config.schedule == Schedule::kCosine) {
    const Output rate = nn::CosineSchedule(step, config.learning_rate,
                                           config.total_steps, dtype);
    return WithWarmUp(config, rate, step, dtype);
  }
  std::vector<double> values = {config.learning_rate};
  for (size_t i = 0; i < config.decay_steps.size(); ++i) {
    values.push_back(values.back() * config.decay_factor);
  }
  const Output rate =
      nn::PiecewiseConstantSchedule(step, config.decay_steps, values, dtype);
  return WithWarmUp(config, rate, step, dtype);
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

Output BuildLogits(Graph& graph, const ResNetConfig& config, DType dtype,
                   Output image, CallSite site) {
  const Graph::SiteScope scope(graph, site);
  std::optional<Graph::Scope> average;
  if (config.average_decay > 0.0) average.emplace(graph, nn::kAverageScope);
  nn::SingleReplica replica(graph);
  return ResNet(replica, config, dtype)(image, nullptr);
}

Evaluation BuildEvaluation(Graph& graph, const ResNetConfig& config,
                           DType dtype, const Batch& batch, Output weight,
                           CallSite site) {
  const Graph::SiteScope scope(graph, site);
  const Output logits = BuildLogits(graph, config, dtype, batch.image);
  const int64_t rows = batch.label.shape()[0];
  const Output own = graph::ReduceSum(
      graph::Mul(logits, graph::OneHot(batch.label, config.num_classes, dtype)),
      {.axes = {1}, .keep_dims = true});
  // classes with at least the label's logit, itself among them; all for NaN
  const Output rank = graph::ReduceSum(
      graph::Cast(graph::Not(graph::Less(logits, own)), DType::kF32),
      {.axes = {1}});
  const auto sum_of = [&](Output value) {
    return graph::ReduceSum(graph::Mul(value, weight));
  };
  const auto share_within = [&](double limit) {
    return sum_of(graph::Cast(
        graph::LessEqual(rank,
                         graph::BroadcastTo(graph.Scalar(limit, DType::kF32),
                                            Shape({rows}))),
        DType::kF32));
  };
  return {.loss = sum_of(graph::Cast(
              graph::SoftmaxCrossEntropyWithLabels(logits, batch.label),
              DType::kF32)),
          .top1 = share_within(1.5),
          .top5 = share_within(5.5),
          .weight = graph::ReduceSum(weight)};
}

Update BuildUpdate(nn::ReplicaContext& replica, const ResNetConfig& config,
                   DType dtype, const Batch& batch, CallSite site) {
  Graph& graph = replica.graph();
  const Graph::SiteScope scope(graph, site);
  const ResNet network(replica, config, dtype);
  const std::vector<nn::VariableId> variables = nn::VariablesOf(graph, "");
  const nn::StepCounter step = nn::AddStepCounter(graph, "step");
  Update update;
  std::tie(update.logits, update.score) =
      BuildForward(network, config, batch, &update.updates);
  update.trained = nn::GradientsOf(update.score.loss, "");
  update.trained.gradients = replica.MeanGradients(update.trained.gradients);
  for (const Output& output :
       AddOptimizer(replica, config.optimizer, update.trained, step.value)) {
    update.updates.push_back(output);
  }
  if (config.average_decay > 0.0) {
    for (const Output& average : nn::AverageVariables(
             graph, variables, step.value, config.average_decay)) {
      update.updates.push_back(average);
    }
  }
  update.updates.push_back(step.advance);
  return update;
}

}  // namespace replicant::models::resnet
