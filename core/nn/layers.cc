#include "core/nn/layers.h"

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/graph/ops/elementwise.h"
#include "core/graph/ops/matmul.h"
#include "core/graph/ops/norm.h"
#include "core/graph/ops/optimizer.h"

namespace replicant::nn {
namespace {

// weight and bias of a layer with weights of this shape
std::vector<VariableId> AddWeights(Graph& graph, const std::string& name,
                                   const Shape& weight,
                                   const LayerOptions& options, CallSite site) {
  const Graph::Scope scope(graph, name);
  std::vector<VariableId> variables;
  variables.push_back(graph.AddVariable(
      {.name = "weight",
       .dtype = options.dtype,
       .shape = weight,
       .initializer = options.weight ? options.weight : PyTorchWeight()},
      site));
  if (options.has_bias) {
    const int64_t fan_in = weight.WithoutLeading().num_elements();
    variables.push_back(graph.AddVariable(
        {.name = "bias",
         .dtype = options.dtype,
         .shape = Shape({weight[0]}),
         .initializer = options.bias ? options.bias : PyTorchBias(fan_in)},
        site));
  }
  return variables;
}

std::vector<VariableId> AddScaleAndOffset(Graph& graph, int64_t size,
                                          DType dtype, CallSite site) {
  return {graph.AddVariable({.name = "weight",
                             .dtype = dtype,
                             .shape = Shape({size}),
                             .initializer = Constant(1.0)},
                            site),
          graph.AddVariable(
              {.name = "bias", .dtype = dtype, .shape = Shape({size})}, site)};
}

}  // namespace

Dense::Dense(Graph& graph, const std::string& name, int64_t in, int64_t out,
             const LayerOptions& options, CallSite site)
    : variables_(AddWeights(graph, name, Shape({out, in}), options, site)) {}

Output Dense::operator()(Output x, CallSite site) const {
  Graph& graph = *x.graph;
  const Output y = graph::MatMul(x, graph.Read(variables_[0], site),
                                 {.transpose_b = true}, site);
  if (variables_.size() == 1) return y;
  return graph::Add(y, graph.Read(variables_[1], site), site);
}

Conv2d::Conv2d(Graph& graph, const std::string& name, int64_t in, int64_t out,
               int64_t kernel, const graph::Conv2dOptions& conv,
               const LayerOptions& options, CallSite site)
    : conv_(conv),
      variables_(AddWeights(graph, name, Shape({out, in, kernel, kernel}),
                            options, site)) {}

Output Conv2d::operator()(Output x, CallSite site) const {
  Graph& graph = *x.graph;
  const Output y =
      graph::Conv2d(x, graph.Read(variables_[0], site), conv_, site);
  if (variables_.size() == 1) return y;
  return graph::Add(y, graph.Read(variables_[1], site), site);
}

LayerNorm::LayerNorm(Graph& graph, const std::string& name, int64_t size,
                     DType dtype, double epsilon, CallSite site)
    : epsilon_(epsilon) {
  const Graph::Scope scope(graph, name);
  variables_ = AddScaleAndOffset(graph, size, dtype, site);
}

Output LayerNorm::operator()(Output x, CallSite site) const {
  Graph& graph = *x.graph;
  return graph::LayerNorm(x, graph.Read(variables_[0], site),
                          graph.Read(variables_[1], site), epsilon_, site);
}

BatchNorm::BatchNorm(Graph& graph, const std::string& name, int64_t size,
                     DType dtype, double epsilon, double momentum,
                     CallSite site)
    : epsilon_(epsilon), momentum_(momentum) {
  const Graph::Scope scope(graph, name);
  variables_ = AddScaleAndOffset(graph, size, dtype, site);
  running_mean_ = graph.AddVariable({.name = "running_mean",
                                     .dtype = dtype,
                                     .shape = Shape({size}),
                                     .is_trainable = false},
                                    site);
  running_variance_ = graph.AddVariable({.name = "running_var",
                                         .dtype = dtype,
                                         .shape = Shape({size}),
                                         .initializer = Constant(1.0),
                                         .is_trainable = false},
                                        site);
}

Output BatchNorm::Train(Output x, std::vector<Output>* updates,
                        CallSite site) const {
  Graph& graph = *x.graph;
  const graph::BatchNormOutputs norm =
      graph::BatchNorm(x, graph.Read(variables_[0], site),
                       graph.Read(variables_[1], site), epsilon_, site);
  const auto count = static_cast<double>(x.shape().num_elements()) /
                     static_cast<double>(norm.mean.shape().num_elements());
  if (count < 2.0) {
    throw InvalidArgument(
        fmt::format("{}: BatchNorm: want at least two elements per channel to "
                    "train, got {}",
                    site.ToString(), x.type().ToString()));
  }
  const Output unbiased =
      graph::Mul(norm.variance, count / (count - 1.0), site);
  updates->push_back(graph::MovingAverageUpdate(
      {running_mean_, running_variance_}, {norm.mean, unbiased},
      graph.Scalar(momentum_, DType::kF32, site), site));
  return norm.y;
}

Output BatchNorm::Infer(Output x, CallSite site) const {
  Graph& graph = *x.graph;
  return graph::BatchNormInference(
      x, graph.Read(variables_[0], site), graph.Read(variables_[1], site),
      graph.Read(running_mean_, site), graph.Read(running_variance_, site),
      epsilon_, site);
}

}  // namespace replicant::nn
