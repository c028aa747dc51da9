#include "engine/nn/layers.h"

#include <fmt/format.h>

#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/indexing.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/optimizer.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::nn {
namespace {

// Declares the weight of shape `weight`, and the bias if there is one, under
// the scope `name`.
std::vector<VariableId> AddWeights(Graph& graph, const std::string& name,
                                   const Shape& weight,
                                   const LayerOptions& options) {
  const Graph::Scope scope(graph, name);
  std::vector<VariableId> variables;
  variables.push_back(graph.AddVariable(
      {.name = "weight",
       .dtype = options.dtype,
       .shape = weight,
       .initializer = options.weight ? options.weight : PyTorchWeight()}));
  if (options.has_bias) {
    const int64_t fan_in = weight.WithoutLeading().num_elements();
    variables.push_back(graph.AddVariable(
        {.name = "bias",
         .dtype = options.dtype,
         .shape = Shape({weight[0]}),
         .initializer = options.bias ? options.bias : PyTorchBias(fan_in)}));
  }
  return variables;
}

// Declares weight (gamma; ones if `first` is empty) and bias (beta; zeros)
// under the scope `name`.
std::vector<VariableId> AddScaleAndOffset(Graph& graph, const std::string& name,
                                          const Shape& shape, DType dtype,
                                          const Initializer& first) {
  const Graph::Scope scope(graph, name);
  return {graph.AddVariable({.name = "weight",
                             .dtype = dtype,
                             .shape = shape,
                             .initializer = first ? first : Constant(1.0)}),
          graph.AddVariable({.name = "bias", .dtype = dtype, .shape = shape})};
}

}  // namespace

Dense::Dense(Graph& graph, const std::string& name, int64_t in, int64_t out,
             const LayerOptions& options, CallSite site) {
  const Graph::SiteScope scope(graph, site);
  variables_ = AddWeights(graph, name, Shape({out, in}), options);
}

Output Dense::operator()(Output x, CallSite site) const {
  const Graph::SiteScope scope(x, site);
  Graph& graph = *x.graph;
  const Output y =
      graph::MatMul(x, graph.Read(variables_[0]), {.transpose_b = true});
  if (variables_.size() == 1) return y;
  return graph::Add(y, graph.Read(variables_[1]));
}

Conv2d::Conv2d(Graph& graph, const std::string& name, int64_t in, int64_t out,
               int64_t kernel, const graph::Conv2dOptions& conv,
               const LayerOptions& options, CallSite site)
    : conv_(conv) {
  const Graph::SiteScope scope(graph, site);
  variables_ =
      AddWeights(graph, name, Shape({out, in, kernel, kernel}), options);
}

Output Conv2d::operator()(Output x, CallSite site) const {
  const Graph::SiteScope scope(x, site);
  Graph& graph = *x.graph;
  const Output y = graph::Conv2d(x, graph.Read(variables_[0]), conv_);
  if (variables_.size() == 1) return y;
  return graph::Add(y, graph.Read(variables_[1]));
}

LayerNorm::LayerNorm(Graph& graph, const std::string& name, int64_t size,
                     DType dtype, double epsilon, CallSite site)
    : epsilon_(epsilon) {
  const Graph::SiteScope scope(graph, site);
  variables_ = AddScaleAndOffset(graph, name, Shape({size}), dtype, {});
}

Output LayerNorm::operator()(Output x, CallSite site) const {
  const Graph::SiteScope scope(x, site);
  Graph& graph = *x.graph;
  return graph::LayerNorm(x, graph.Read(variables_[0]),
                          graph.Read(variables_[1]), epsilon_);
}

RunningStatistics::RunningStatistics(Graph& graph, const std::string& name,
                                     int64_t size,
                                     const BatchNormLayerOptions& options)
    : epsilon_(options.epsilon),
      momentum_(options.momentum),
      gather_(options.gather) {
  const Graph::Scope scope(graph, name);
  mean_ = graph.AddVariable({.name = "running_mean",
                             .dtype = options.dtype,
                             .shape = Shape({size}),
                             .is_trainable = false});
  variance_ = graph.AddVariable({.name = "running_var",
                                 .dtype = options.dtype,
                                 .shape = Shape({size}),
                                 .initializer = Constant(1.0),
                                 .is_trainable = false});
}

Output RunningStatistics::Train(Output x, Output gamma, Output beta,
                                const NormEpilogue& epilogue,
                                std::vector<Output>* updates) const {
  Graph& graph = *x.graph;
  const auto [norm, count] = Normalise(x, gamma, beta, epilogue);
  if (count < 2.0) {
    throw InvalidArgument(
        fmt::format("{}: BatchNorm: want at least two elements per channel to "
                    "train, got {}",
                    graph.site().ToString(), x.type().ToString()));
  }
  const Output unbiased = graph::Mul(norm.variance, count / (count - 1.0));
  updates->push_back(graph::MovingAverageUpdate(
      {mean_, variance_}, {norm.mean, unbiased},
      graph.Scalar(momentum_, graph::ScalarDType(norm.mean.dtype()))));
  return norm.y;
}

RunningStatistics::Normalised RunningStatistics::Normalise(
    Output x, Output gamma, Output beta, const NormEpilogue& epilogue) const {
  const graph::BatchNormOptions options{.epsilon = epsilon_,
                                        .has_relu = epilogue.has_relu,
                                        .residual = epilogue.residual};
  const auto count_of = [&](Output mean) {
    return static_cast<double>(x.shape().num_elements()) /
           static_cast<double>(mean.shape().num_elements());
  };
  if (!gather_) {
    const auto norm = graph::BatchNorm(x, gamma, beta, options);
    return {norm, count_of(norm.mean)};
  }
  // combine the moments of all replicas
  const Output gathered = gather_(graph::BatchMoments(x));
  const Output moments = graph::CombineMoments(gathered);
  const auto row = [&](int64_t i) {
    return graph::Reshape(
        graph::Slice(moments, {i, 0}, {1, moments.shape()[1]}), {-1});
  };
  const Output mean = row(0);
  return {{.y = graph::BatchNormApply(x, gamma, beta, moments, options),
           .mean = mean,
           .variance = row(1)},
          count_of(mean) * static_cast<double>(gathered.shape()[0])};
}

Output RunningStatistics::Infer(Output x, Output gamma, Output beta,
                                const NormEpilogue& epilogue) const {
  Graph& graph = *x.graph;
  return graph::BatchNormInference(x, gamma, beta, graph.Read(mean_),
                                   graph.Read(variance_),
                                   {.epsilon = epsilon_,
                                    .has_relu = epilogue.has_relu,
                                    .residual = epilogue.residual});
}

BatchNorm::BatchNorm(Graph& graph, const std::string& name, int64_t size,
                     const BatchNormLayerOptions& options, CallSite site) {
  const Graph::SiteScope scope(graph, site);
  variables_ = AddScaleAndOffset(graph, name, Shape({size}), options.dtype,
                                 options.weight);
  statistics_.emplace(graph, name, size, options);
}

Output BatchNorm::Train(Output x, std::vector<Output>* updates,
                        const NormEpilogue& epilogue, CallSite site) const {
  const Graph::SiteScope scope(x, site);
  Graph& graph = *x.graph;
  return statistics_->Train(x, graph.Read(variables_[0]),
                            graph.Read(variables_[1]), epilogue, updates);
}

Output BatchNorm::Infer(Output x, const NormEpilogue& epilogue,
                        CallSite site) const {
  const Graph::SiteScope scope(x, site);
  Graph& graph = *x.graph;
  return statistics_->Infer(x, graph.Read(variables_[0]),
                            graph.Read(variables_[1]), epilogue);
}

ConditionalBatchNorm::ConditionalBatchNorm(Graph& graph,
                                           const std::string& name,
                                           int64_t num_classes, int64_t size,
                                           const BatchNormLayerOptions& options,
                                           CallSite site) {
  const Graph::SiteScope scope(graph, site);
  variables_ = AddScaleAndOffset(graph, name, Shape({num_classes, size}),
                                 options.dtype, options.weight);
  statistics_.emplace(graph, name, size, options);
}

Output ConditionalBatchNorm::Train(Output x, Output labels,
                                   std::vector<Output>* updates,
                                   const NormEpilogue& epilogue,
                                   CallSite site) const {
  const Graph::SiteScope scope(x, site);
  Graph& graph = *x.graph;
  return statistics_->Train(
      x, graph::Embedding(graph.Read(variables_[0]), labels),
      graph::Embedding(graph.Read(variables_[1]), labels), epilogue, updates);
}

Output ConditionalBatchNorm::Infer(Output x, Output labels,
                                   const NormEpilogue& epilogue,
                                   CallSite site) const {
  const Graph::SiteScope scope(x, site);
  Graph& graph = *x.graph;
  return statistics_->Infer(
      x, graph::Embedding(graph.Read(variables_[0]), labels),
      graph::Embedding(graph.Read(variables_[1]), labels), epilogue);
}

}  // namespace replicant::nn
