#include "models/features/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/error.h"
#include "engine/graph/ops/conv.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/losses.h"
#include "engine/graph/ops/matmul.h"
#include "engine/graph/ops/norm.h"
#include "engine/graph/ops/pool.h"
#include "engine/graph/ops/reduce.h"
#include "engine/graph/ops/shape_ops.h"
#include "engine/nn/single_replica.h"
#include "models/resnet/network.h"

namespace replicant::models::features {
namespace {

using graph::Graph;
using graph::Output;

// [B, H, W, C] with `padding` rows and columns of zeros on each side.
Output PadImage(Output x, const std::vector<int64_t>& padding) {
  if (padding[0] == 0 && padding[1] == 0) return x;
  const std::vector<int64_t> pad = {0, padding[0], padding[1], 0};
  return graph::Pad(x, pad, pad);
}

// Colours in [0, 1], normalised.
Output Normalize(Graph& graph, const FeatureNetworkConfig& config,
                 Output image) {
  std::vector<float> scale, offset;
  for (size_t i = 0; i < 3; ++i) {
    scale.push_back(static_cast<float>(1.0 / (255.0 * config.deviation[i])));
    offset.push_back(static_cast<float>(-config.mean[i] / config.deviation[i]));
  }
  const auto constant = [&](const std::vector<float>& values) {
    return graph::BroadcastTo(
        graph.Constant(TensorView(DType::kF32, Shape({3}), values.data())),
        image.shape());
  };
  return graph::Add(
      graph::Mul(graph::Cast(image, DType::kF32), constant(scale)),
      constant(offset));
}

class Builder {
 public:
  Builder(Graph& graph, const ShapeOfWeight& shape_of)
      : graph_(graph), shape_of_(shape_of) {}

  Output Build(const LayerConfig& layer, const std::vector<Output>& from) {
    const Output x = from[0];
    const bool has_many =
        layer.op == LayerKind::kConcat || layer.op == LayerKind::kAdd;
    if (from.size() > 1 && !has_many) {
      throw ConfigError("want one layer in 'from'");
    }
    switch (layer.op) {
      case LayerKind::kConv:
        return WithBias(layer, graph::Conv2d(PadImage(x, layer.padding),
                                             Weight(layer, "weight"),
                                             {.stride = layer.stride}));
      case LayerKind::kBatchNorm:
        return graph::BatchNormInference(
            x, Weight(layer, "weight"), Weight(layer, "bias"),
            Weight(layer, "running_mean"), Weight(layer, "running_var"),
            {.epsilon = layer.epsilon});
      case LayerKind::kRelu:
        return graph::Relu(x);
      case LayerKind::kMaxPool:
        return graph::MaxPool2d(x, Pool(layer));
      case LayerKind::kAveragePool:
        if (layer.has_padding_in_mean) {
          return graph::AveragePool2d(
              PadImage(x, layer.padding),
              {.window = layer.window, .stride = layer.stride});
        }
        return graph::AveragePool2d(x, Pool(layer));
      case LayerKind::kGlobalAveragePool:
        return graph::GlobalAveragePool(x);
      case LayerKind::kConcat:
        return graph::Concat(from, -1);
      case LayerKind::kAdd:
        return Sum(from);
      case LayerKind::kLinear:
        break;
    }
    return WithBias(layer, graph::MatMul(x, Weight(layer, "weight"),
                                         {.transpose_b = true}));
  }

 private:
  static std::string NameOf(const LayerConfig& layer, const char* part) {
    return fmt::format("{}.{}", layer.weights, part);
  }

  Output Weight(const LayerConfig& layer, const char* part) {
    const std::string name = NameOf(layer, part);
    std::string variable = name;
    std::ranges::replace(variable, '.', '/');
    return graph_.Read(graph_.AddVariable({.name = variable,
                                           .dtype = DType::kF32,
                                           .shape = shape_of_(name),
                                           .is_trainable = false}));
  }

  // Adds the bias if the weights have one. Batch norm often makes it needless.
  Output WithBias(const LayerConfig& layer, Output y) {
    try {
      (void)shape_of_(NameOf(layer, "bias"));
    } catch (const IoError&) {
      return y;
    }
    return graph::Add(y, Weight(layer, "bias"));
  }

  static Output Sum(const std::vector<Output>& terms) {
    Output sum = terms[0];
    for (size_t i = 1; i < terms.size(); ++i) sum = graph::Add(sum, terms[i]);
    return sum;
  }

  // Pools pad rows and columns alike.
  static graph::PoolOptions Pool(const LayerConfig& layer) {
    if (layer.padding[0] != layer.padding[1]) {
      throw ConfigError(
          fmt::format("padding: want two equal numbers for a pool, got [{}, "
                      "{}]",
                      layer.padding[0], layer.padding[1]));
    }
    return {.window = layer.window,
            .stride = layer.stride,
            .padding = layer.padding[0]};
  }

  Graph& graph_;
  const ShapeOfWeight& shape_of_;
};

Features BuildLayers(Graph& graph, const FeatureNetworkConfig& config,
                     const ShapeOfWeight& shape_of, Output image) {
  Builder builder(graph, shape_of);
  Output last = Normalize(graph, config, image);
  std::map<std::string, Output> outputs = {{"image", last}};
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerConfig& layer = config.layers[i];
    std::vector<Output> from;
    for (const std::string& name : layer.from) from.push_back(outputs.at(name));
    if (from.empty()) from.push_back(last);
    try {
      last = builder.Build(layer, from);
    } catch (const IoError&) {
      throw;
    } catch (const Error& e) {
      throw ConfigError(fmt::format(
          "layers.{} {}: {}", i,
          layer.name.empty() ? layer.weights : layer.name, e.what()));
    }
    if (!layer.name.empty()) outputs[layer.name] = last;
  }
  Features result{.features = outputs.at(config.features)};
  if (result.features.shape().rank() != 2) {
    throw ConfigError(fmt::format("features: want vectors, '{}' is {}",
                                  config.features,
                                  result.features.shape().ToString()));
  }
  if (!config.logits.empty()) {
    result.probabilities = graph::Softmax(outputs.at(config.logits));
  }
  return result;
}

}  // namespace

Features BuildFeatures(Graph& graph, const FeatureNetworkConfig& config,
                       const ShapeOfWeight& shape_of, Output image) {
  if (!config.resnet) return BuildLayers(graph, config, shape_of, image);
  nn::SingleReplica replica(graph);
  const resnet::ResNet network(replica, *config.resnet);
  const Output features = network.Features(image, /*updates=*/nullptr);
  return {.features = features,
          .probabilities = graph::Softmax(network.Classify(features))};
}

}  // namespace replicant::models::features
