#include "agents/d4pg/networks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "agents/images.h"
#include "base/check.h"
#include "base/error.h"
#include "engine/graph/ops/elementwise.h"
#include "engine/graph/ops/image.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::agents::d4pg {
namespace {

// Initial values of a last layer: weights and biases are multiplied by `scale`,
// and bias i is lower by bias_slope * i.
nn::LayerOptions LastLayerOptions(const NetworkConfig& config, double scale,
                                  double bias_slope, int64_t in, DType dtype) {
  nn::LayerOptions options = LayerOptionsOf(config, 1.0, dtype);
  options.weight =
      nn::Scaled(options.weight ? options.weight : nn::PyTorchWeight(), scale);
  const nn::Initializer bias =
      nn::Scaled(options.bias ? options.bias : nn::PyTorchBias(in), scale);
  if (bias_slope == 0.0) {
    options.bias = bias;
  } else {
    options.bias = nn::PlusRamp(bias, -bias_slope);
  }
  return options;
}

Output Activate(Output x, Activation activation) {
  return activation == Activation::kElu ? graph::Elu(x, 1.0) : graph::Relu(x);
}

int64_t ConvSize(int64_t size, const ConvLayer& layer) {
  return size < layer.kernel ? 0 : (size - layer.kernel) / layer.stride + 1;
}

// Returns height, width and channels after the convolutions; a size is zero if
// the image is too small.
std::array<int64_t, 3> ConvnetSize(const NetworkConfig& config,
                                   const Shape& image) {
  std::array<int64_t, 3> size = {image[0], image[1], image[2]};
  for (const ConvLayer& layer : config.encoder.Layers()) {
    size = {ConvSize(size[0], layer), ConvSize(size[1], layer), layer.channels};
  }
  return size;
}

// x next to the state, if there is one. [B, N] -> [B, N + S]
Output WithState(Output x, Output state) {
  return state.is_valid() ? graph::Concat({x, state}, /*axis=*/1) : x;
}

// Numbers that a head reads: the embedding's, or the features' without one, and
// the state's.
int64_t HeadInputs(const NetworkConfig& config, const LearningSpec& spec,
                   const std::optional<Embedding>& trunk,
                   int64_t feature_size) {
  return (trunk ? config.embedding_size : feature_size) +
         (config.has_shared_embedding ? 0 : spec.task.state_size);
}

std::optional<Embedding> MakeTrunk(Graph& graph, const NetworkConfig& config,
                                   int64_t feature_size, DType dtype) {
  if (config.has_shared_embedding || !config.encoder.has_pixels()) {
    return std::nullopt;
  }
  const Graph::Scope scope(graph, "trunk");
  return Embedding(graph, config, feature_size, config.embedding_size,
                   config.embedding_activation, dtype);
}

}  // namespace

nn::LayerOptions LayerOptionsOf(const NetworkConfig& config, double gain,
                                DType dtype) {
  nn::LayerOptions options{.dtype = dtype};
  if (config.initialization == Initialization::kOrthogonal) {
    options.weight = nn::Orthogonal(gain);
    options.bias = nn::Constant(0.0);
  }
  return options;
}

void CheckSpec(const NetworkConfig& config, const LearningSpec& spec) {
  if (spec.task.action_size() < 1) {
    throw ConfigError(fmt::format("D4PG: want at least one action, got {}",
                                  spec.task.action_size()));
  }
  const bool has_pixels = config.encoder.has_pixels();
  const Shape& observation = spec.task.observation;
  const int rank = has_pixels && spec.task.images.empty() ? 3 : 1;
  if (spec.task.has_pixels != has_pixels || observation.rank() != rank ||
      observation.num_elements() < 1) {
    throw ConfigError(
        has_pixels
            ? fmt::format("agent.networks.encoder.kind: wants pixels, "
                          "observations [H,W,C], got {}; hint: "
                          "task.pixels.enabled: true, or encoder.kind: state",
                          observation.ToString())
            : fmt::format("agent.networks.encoder.kind: state wants "
                          "observations [O], got {}; hint: an encoder of "
                          "pixels, or task.pixels.enabled: false",
                          observation.ToString()));
  }
  if (!has_pixels) {
    if (spec.task.state_size == 0) return;
    throw ConfigError(fmt::format(
        "D4PG: a state of {} numbers, but the observation {} has no pixels",
        spec.task.state_size, observation.ToString()));
  }
  const std::vector<ImageSpec> images = spec.task.AllImages();
  for (const ImageSpec& image : images) {
    const auto [height, width, channels] = ConvnetSize(config, image.shape);
    if (height < 1 || width < 1) {
      throw ConfigError(fmt::format(
          "agent.networks.encoder.kind: images {} are too small for its "
          "convolutions; hint: larger task.pixels.height and width",
          image.shape.ToString()));
    }
    if (config.encoder.has_shared_weights &&
        image.shape[2] != images[0].shape[2]) {
      throw ConfigError(fmt::format(
          "agent.networks.encoder.shared_weights: want images of as many "
          "channels, but '{}' is {} and '{}' {}; hint: shared_weights: false",
          images[0].name, images[0].shape.ToString(), image.name,
          image.shape.ToString()));
    }
  }
}

Encoder::Encoder(Graph& graph, const NetworkConfig& config,
                 const LearningSpec& spec, CallSite site)
    : dtype_(spec.dtype), task_(spec.task) {
  const Graph::SiteScope site_scope(graph, site);
  CheckSpec(config, spec);
  const Graph::Scope scope(graph, "encoder");
  feature_size_ = task_.has_pixels ? AddConvnets(graph, config, spec)
                                   : task_.observation[0];
  if (!config.has_shared_embedding) return;
  const Graph::Scope trunk_scope(graph, "trunk");
  embedding_.emplace(graph, config, feature_size_ + spec.task.state_size,
                     config.embedding_size, config.embedding_activation,
                     spec.dtype);
  feature_size_ = config.embedding_size;
}

int64_t Encoder::AddConvnets(Graph& graph, const NetworkConfig& config,
                             const LearningSpec& spec) {
  int64_t num_features = 0;
  for (const ImageSpec& image : task_.AllImages()) {
    const auto [height, width, channels] = ConvnetSize(config, image.shape);
    num_features += height * width * channels;
    if (config.encoder.has_shared_weights && !convnets_.empty()) continue;
    const bool is_of_one =
        !task_.images.empty() && !config.encoder.has_shared_weights;
    const Graph::Scope scope(graph,
                             is_of_one ? image.name + "/convnet" : "convnet");
    Convnet& convnet = convnets_.emplace_back();
    int64_t in = image.shape[2];
    for (const ConvLayer& layer : config.encoder.Layers()) {
      // PyTorch numbers the convolution and its relu as two modules
      const std::string name = std::to_string(2 * convnet.size());
      convnet.emplace_back(graph, name, in, layer.channels, layer.kernel,
                           graph::Conv2dOptions{.stride = layer.stride},
                           LayerOptionsOf(config, std::sqrt(2.0), spec.dtype));
      in = layer.channels;
    }
  }
  return num_features;
}

Output Encoder::Encode(const Convnet& convnet, Output image) const {
  Output x = graph::NormalizePixels(image, dtype_, 1.0 / 255.0, -0.5);
  for (const nn::Conv2d& layer : convnet) x = graph::Relu(layer(x));
  return graph::Reshape(x, {x.shape()[0], -1});
}

Features Encoder::operator()(Output observation, Output state,
                             CallSite site) const {
  return (*this)(SplitImages(task_, observation, site), state, site);
}

Features Encoder::operator()(const std::vector<Output>& images, Output state,
                             CallSite site) const {
  const Graph::SiteScope scope(images.at(0), site);
  std::vector<Output> features;
  for (size_t i = 0; i < images.size(); ++i) {
    features.push_back(
        task_.has_pixels
            ? Encode(convnets_[std::min(i, convnets_.size() - 1)], images[i])
            : images[i]);
  }
  const Output x =
      features.size() == 1 ? features[0] : graph::Concat(features, /*axis=*/1);
  if (!embedding_) return {.encoded = x, .state = state};
  return {.encoded = (*embedding_)(WithState(x, state)), .state = {}};
}

std::vector<VariableId> Encoder::variables() const {
  std::vector<VariableId> all;
  for (const Convnet& convnet : convnets_) {
    for (const nn::Conv2d& layer : convnet) {
      all.insert(all.end(), layer.variables().begin(), layer.variables().end());
    }
  }
  if (embedding_) embedding_->AppendVariables(&all);
  return all;
}

Embedding::Embedding(Graph& graph, const NetworkConfig& config, int64_t in,
                     int64_t size, EmbeddingActivation activation, DType dtype)
    : activation_(activation),
      linear_(graph, "0", in, size, LayerOptionsOf(config, 1.0, dtype)),
      norm_(graph, "1", size, dtype, /*epsilon=*/1e-5) {}

Output Embedding::operator()(Output x) const {
  const Output normalized = norm_(linear_(x));
  return activation_ == EmbeddingActivation::kElu ? graph::Elu(normalized)
                                                  : graph::Tanh(normalized);
}

void Embedding::AppendVariables(std::vector<VariableId>* variables) const {
  for (const auto* layer : {&linear_.variables(), &norm_.variables()}) {
    variables->insert(variables->end(), layer->begin(), layer->end());
  }
}

Head::Head(Graph& graph, const NetworkConfig& config, const Options& options)
    : activation_(config.activation),
      first_(graph, config, options.in, options.hidden_sizes.at(0),
             EmbeddingActivation::kTanh, options.last_layer.dtype) {
  const auto& sizes = options.hidden_sizes;
  const double gain =
      config.activation == Activation::kRelu ? std::sqrt(2.0) : 1.0;
  for (size_t i = 1; i <= sizes.size(); ++i) {
    const bool is_last = i == sizes.size();
    // modules 0, 1, 2 are linear, norm and tanh; then each layer and its
    // activation are two modules
    layers_.emplace_back(
        graph, std::to_string(2 * i + 1), sizes[i - 1],
        is_last ? options.out : sizes[i],
        is_last ? options.last_layer
                : LayerOptionsOf(config, gain, options.last_layer.dtype));
  }
}

Output Head::operator()(Output x, std::vector<Output>* hidden) const {
  x = first_(x);
  for (size_t i = 0; i + 1 < layers_.size(); ++i) {
    x = Activate(layers_[i](x), activation_);
    if (hidden != nullptr) hidden->push_back(x);
  }
  return layers_.back()(x);
}

void Head::AppendVariables(std::vector<VariableId>* variables) const {
  first_.AppendVariables(variables);
  for (const nn::Dense& layer : layers_) {
    variables->insert(variables->end(), layer.variables().begin(),
                      layer.variables().end());
  }
}

PolicyNetwork::PolicyNetwork(Graph& graph, const NetworkConfig& config,
                             const LearningSpec& spec, int64_t feature_size,
                             CallSite site) {
  const Graph::SiteScope site_scope(graph, site);
  const Graph::Scope scope(graph, "policy");
  trunk_ = MakeTrunk(graph, config, feature_size, spec.dtype);
  {
    const Graph::Scope head_scope(graph, "head");
    const auto& sizes = config.policy_hidden_sizes;
    head_.emplace(
        graph, config,
        Head::Options{.hidden_sizes = sizes,
                      .in = HeadInputs(config, spec, trunk_, feature_size),
                      .out = spec.task.action_size(),
                      .last_layer = LastLayerOptions(
                          config, config.policy_last_layer_scale,
                          /*bias_slope=*/0.0, sizes.back(), spec.dtype)});
  }
  if (trunk_) trunk_->AppendVariables(&variables_);
  head_->AppendVariables(&variables_);
}

PolicyNetwork::Result PolicyNetwork::operator()(const Features& features,
                                                CallSite site) const {
  const Output encoded = features.encoded;
  const Graph::SiteScope scope(encoded, site);
  const Output x = trunk_ ? (*trunk_)(encoded) : encoded;
  Result result;
  result.pre_tanh = (*head_)(WithState(x, features.state), &result.hidden);
  result.action = graph::Tanh(result.pre_tanh);
  return result;
}

CriticNetwork::CriticNetwork(Graph& graph, const NetworkConfig& config,
                             const LearningSpec& spec, const CriticInput& input,
                             int64_t num_atoms, CallSite site) {
  const Graph::SiteScope site_scope(graph, site);
  const Graph::Scope scope(graph, "critic");
  trunk_ = MakeTrunk(graph, config, input.feature_size, spec.dtype);
  {
    const Graph::Scope head_scope(graph, "head");
    const auto& sizes = config.critic_hidden_sizes;
    head_.emplace(
        graph, config,
        Head::Options{
            .hidden_sizes = sizes,
            .in = HeadInputs(config, spec, trunk_, input.feature_size) +
                  (input.has_action ? spec.task.action_size() : 0),
            .out = num_atoms,
            .last_layer = LastLayerOptions(
                config, config.critic_last_layer_scale,
                config.critic_bias_slope, sizes.back(), spec.dtype)});
  }
  if (trunk_) trunk_->AppendVariables(&variables_);
  head_->AppendVariables(&variables_);
}

CriticNetwork::Result CriticNetwork::operator()(const Features& features,
                                                Output action,
                                                CallSite site) const {
  const Output encoded = features.encoded;
  const Graph::SiteScope scope(encoded, site);
  const Graph::DeviceScope device(*encoded.graph, device_);
  const Output x = trunk_ ? (*trunk_)(encoded) : encoded;
  const Output with_state = WithState(x, features.state);
  Result result;
  result.logits = (*head_)(action.is_valid()
                               ? graph::Concat({with_state, action}, /*axis=*/1)
                               : with_state,
                           &result.hidden);
  return result;
}

}  // namespace replicant::agents::d4pg
